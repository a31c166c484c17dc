//! A file with the settings of a service, and the variables of a process.

use std::{env, ffi::OsStr, fs, path::Path};

use clap::{Arg, Command, builder::Resettable, error::ErrorKind};

/// Changes each option that has a variable.
fn map_options(program: Command, mut map: impl FnMut(Arg) -> Arg) -> Command {
    let program = program.mut_args(&mut map);
    program.mut_subcommands(|it| it.mut_args(&mut map))
}

/// Has variables count as unset that are empty, as where a template has no value.
pub(crate) fn without_empty_variables(program: Command) -> Command {
    let is_empty = |name: &OsStr| env::var_os(name).is_some_and(|it| it.is_empty());
    map_options(program, |arg| match arg.get_env() {
        Some(name) if is_empty(name) => arg.env(Resettable::Reset),
        _ => arg,
    })
}

/// Takes the settings of a file, `NAME=VALUE` in each line, as the defaults of the options that have these variables. Variables
/// of other programs are left alone.
pub(crate) fn with_defaults(mut program: Command, file: &Path) -> clap::error::Result<Command> {
    let fail = |program: &mut Command, reason: String| {
        let message = format!("{}: {reason}", file.display());
        program.error(ErrorKind::ValueValidation, message)
    };
    let text = fs::read(file).map_err(|error| fail(&mut program, error.to_string()))?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let text = readable(text).map_err(|reason| fail(&mut program, reason))?;
    for setting in dotenvy::from_read_iter(text.as_bytes()) {
        let (name, value) = setting.map_err(|error| fail(&mut program, explained(&error)))?;
        // As long as the program, as all of its defaults.
        let value: &'static str = value.leak();
        let mut is_known = false;
        program = map_options(program, |arg| match arg.get_env() {
            Some(variable) if *variable == *name => {
                is_known = true;
                if value.is_empty() {
                    return arg;
                }
                arg.default_value(value).hide_default_value(true)
            }
            _ => arg,
        });
        if !is_known && name.starts_with("REDLOCK_") {
            let reason =
                format!("no option has the variable {name}: `redlock help run` lists them");
            return Err(fail(&mut program, reason));
        }
    }
    Ok(program)
}

/// Returns the text, or says in which line it is none. No variable can have a NUL.
fn readable(bytes: &[u8]) -> Result<&str, String> {
    let (end, text) = match str::from_utf8(bytes) {
        Ok(text) => (text.find('\0'), text),
        Err(error) => (Some(error.valid_up_to()), ""),
    };
    end.map_or(Ok(text), |end| {
        let number = bytes[..end].iter().filter(|it| **it == b'\n').count() + 1;
        Err(format!(
            "line {number} is not text: it has a NUL, or bytes that are not UTF-8"
        ))
    })
}

/// Says why a line cannot be read, and not what it has: that may be a password.
fn explained(error: &dotenvy::Error) -> String {
    match error {
        dotenvy::Error::LineParse(..) => {
            "a line is not NAME=VALUE: a value with spaces is in quotes, and quotes are closed"
                .to_owned()
        }
        other => other.to_string(),
    }
}
