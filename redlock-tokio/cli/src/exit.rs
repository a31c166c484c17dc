use std::{fmt, io, process::ExitCode};

use redlock_tokio::{BuildError, LockError, errors::OptionsError};
use serde_json::Value;
use signal_hook::{consts::SIGINT, low_level::emulate_default_handler};

/// How the program ends. `CLI.md` has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    /// Somebody else has the lock.
    Contended,
    /// The lock was lost before the work was done.
    Lost,
    /// The nodes grant no lock.
    Unavailable,
    /// The arguments are wrong.
    Usage,
    /// The key that is to be freed has no lock.
    NotALock,
    /// This program cannot go on.
    Internal,
    /// Nobody reads the output any more, as after `| head -1`.
    Unread,
    /// The command cannot be executed.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// The code of the command.
    Of(u8),
    /// The signal that has ended the command, or this program while it waited.
    Signal(i32),
}

impl Exit {
    /// Ends this process by SIGINT if this has ended the command. Otherwise a script would go on after Ctrl-C: its shell ends
    /// only if the signal has ended the process that it waits for.
    pub(crate) fn end_by_signal(self) {
        if self == Self::Signal(SIGINT) {
            let _ = emulate_default_handler(SIGINT);
        }
    }

    /// Returns the code. Those of failures are the ones of `sysexits.h` and of shells.
    pub(crate) fn code(self) -> u8 {
        self.row().0
    }

    /// Returns the word for scripts.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (u8, &'static str) {
        match self {
            Self::Ok => (0, "ok"),
            Self::Usage => (64, "usage"),
            Self::NotALock => (65, "not_a_lock"),
            Self::Unavailable => (69, "unavailable"),
            Self::Internal => (70, "internal"),
            Self::Unread => (141, "unread"), // as SIGPIPE ends other programs
            Self::Contended => (75, "contended"),
            Self::Lost => (76, "lost"),
            Self::NotExecutable => (126, "not_executable"),
            Self::NotFound => (127, "not_found"),
            Self::Of(code) => (code, "command"),
            Self::Signal(signal) => (u8::try_from(128 + signal).unwrap_or(u8::MAX), "command"),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What something returns, unless the program fails.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why the program fails.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What the nodes had, for scripts. Null if they were not asked.
    pub(crate) seen: Value,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
            seen: Value::Null,
        }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns why the output was not written.
    pub(crate) fn unwritten(error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => Exit::Unread,
            _ => Exit::Internal,
        };
        Self::new(exit, format_args!("the output cannot be written: {error}"))
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let exit = match &error {
            LockError::Contended(_) => Exit::Contended,
            LockError::InvalidKey(_) | LockError::InvalidOptions(_) => Exit::Usage,
            _ => Exit::Unavailable,
        };
        match &error {
            LockError::InvalidOptions(error) => Self::new(exit, advice(error)),
            LockError::Quarantined {
                remaining,
                attempts,
            } => {
                let seconds = remaining.as_secs_f64().round().max(1.0);
                let message = format!(
                    "quarantined: a majority votes in about {seconds} s, and --wait waits for that ({attempts})"
                );
                Self::new(exit, message)
            }
            _ => Self::new(exit, error),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let exit = match &error {
            BuildError::Refused { .. } => Exit::Unavailable,
            _ => Exit::Usage,
        };
        match &error {
            BuildError::Options(error) => Self::new(exit, advice(error)),
            _ => Self::new(exit, error),
        }
    }
}

/// Says what to change, by the names of this program.
fn advice(error: &OptionsError) -> String {
    match error {
        OptionsError::ShorterThanThreeWindows { ttl, window } => format!(
            "the ttl of {ttl:?} is shorter than three times --confirmation-window, which is {window:?}: choose a longer \
             --ttl, or a shorter window in all processes that use these nodes"
        ),
        other => other.to_string(),
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Internal, error)
    }
}
