//! A file with the settings of a service.

use std::{fs, path::Path};

use clap::{Arg, Command, error::ErrorKind};

/// Takes the settings of a file, `NAME=VALUE` in each line, as the defaults of the options that have these variables. Variables
/// of other programs are left alone.
pub(crate) fn with_defaults(mut program: Command, file: &Path) -> clap::error::Result<Command> {
    let fail = |program: &mut Command, reason: String| {
        let message = format!("{}: {reason}", file.display());
        program.error(ErrorKind::ValueValidation, message)
    };
    let text = fs::read(file).map_err(|error| fail(&mut program, error.to_string()))?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    for setting in dotenvy::from_read_iter(text) {
        let (name, value) = setting.map_err(|error| fail(&mut program, explained(&error)))?;
        // As long as the program, as all of its defaults.
        let value: &'static str = value.leak();
        let mut is_known = false;
        let mut set = |arg: Arg| match arg.get_env() {
            Some(variable) if *variable == *name => {
                is_known = true;
                arg.default_value(value).hide_default_value(true)
            }
            _ => arg,
        };
        program = program.mut_args(&mut set);
        program = program.mut_subcommands(|it| it.mut_args(&mut set));
        if !is_known && name.starts_with("REDLOCK_") {
            let reason =
                format!("no option has the variable {name}: `redlock help run` lists them");
            return Err(fail(&mut program, reason));
        }
    }
    Ok(program)
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
