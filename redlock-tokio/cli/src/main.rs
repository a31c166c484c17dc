//! `redlock`: locks, and a look at them, from the command line. `CLI.md` is its page.

mod args;
mod child;
mod config;
mod connection;
mod exit;
mod family;
mod guard;
mod guardian;
mod inspect;
mod list;
mod nodes;
mod output;
mod run;
mod signals;
mod unlock;
mod waiting;
mod watch;

use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    process::ExitCode,
};

use clap::{ColorChoice, CommandFactory, FromArgMatches};
use clap_complete::Shell;

use self::{
    args::{Cli, Command},
    exit::{Exit, Failure, Result},
    output::Output,
};

fn main() -> ExitCode {
    if let Some(exit) = guard::main() {
        return exit.into();
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print();
            if error.use_stderr() {
                return Exit::Usage.into();
            }
            return ended(written(printed), &Output::new(false, ColorChoice::Auto));
        }
    };
    let output = Output::new(cli.json, cli.color);
    ended(execute(cli, &output), &output)
}

fn ended(outcome: Result<Exit>, output: &Output) -> ExitCode {
    match outcome {
        Ok(exit) => {
            exit.end_by_signal();
            exit.into()
        }
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Reads the arguments, and the file of settings if there is one.
fn parse() -> clap::error::Result<Cli> {
    let parse = |program| {
        let mut program = config::without_empty_variables(program);
        let matches = program.try_get_matches_from_mut(std::env::args_os())?;
        Cli::from_arg_matches(&matches)
    };
    let cli = parse(Cli::command())?;
    match &cli.connection.config {
        Some(file) if !file.is_empty() => {
            parse(config::with_defaults(Cli::command(), file.as_ref())?)
        }
        _ => Ok(cli),
    }
}

fn execute(mut cli: Cli, output: &Output) -> Result<Exit> {
    for key in cli.command.keys_mut().iter_mut().filter(|_| cli.hex) {
        let bytes = hex::decode(key.as_bytes()).map_err(|error| {
            let key = key.display();
            Failure::usage(format_args!("`{key}` is not hexadecimal: {error}"))
        })?;
        *key = OsString::from_vec(bytes);
    }
    let nodes = &cli.connection;
    let only_writes = !matches!(
        cli.command,
        Command::Run(_) | Command::Elect(_) | Command::Unlock(_)
    );
    let execution = async {
        match cli.command {
            Command::Run(args) => run::run(nodes, &args, output).await,
            Command::Elect(args) => run::elect(nodes, &args, output).await,
            Command::Inspect(args) => inspect::run(nodes, &args, output).await,
            Command::List => list::run(nodes, output).await,
            Command::Unlock(args) => unlock::run(nodes, &args, output).await,
            Command::Watch(args) => watch::run(nodes, &args, output).await,
            Command::Nodes(args) => nodes::run(nodes, &args, output).await,
            Command::Completions { shell } => completions(shell),
            Command::Man { command } => man(command.as_deref()),
        }
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        tokio::select! {
            biased;
            outcome = execution => outcome,
            unread = Output::closed(), if only_writes => Err(unread),
        }
    })
}

/// Ends after what this process has written to stdout.
fn written(result: io::Result<()>) -> Result<Exit> {
    let written = result.and_then(|()| io::stdout().flush());
    written.map_err(|error| Failure::unwritten(&error))?;
    Ok(Exit::Ok)
}

fn completions(shell: Shell) -> Result<Exit> {
    let name = Cli::command().get_name().to_owned();
    // It would panic if the output could not be written.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), name, &mut script);
    written(io::stdout().write_all(&script))
}

fn man(command: Option<&str>) -> Result<Exit> {
    // The page of `help` would only say what `man` says.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let of = match command {
        Some(name) => program.find_subcommand(name),
        None => Some(&program),
    };
    let of = of.ok_or_else(|| {
        let names = program.get_subcommands().map(|it| it.get_name());
        let names = names.collect::<Vec<_>>().join(", ");
        Failure::usage(format_args!(
            "there is no such command: choose one of {names}"
        ))
    })?;
    let source = concat!("redlock ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(of.clone()).source(source);
    written(page.render(&mut io::stdout()))
}
