use std::{io, time::Duration};

use thiserror::Error;

/// How long a server may take to start.
pub(super) const START_LIMIT: Duration = Duration::from_secs(20);

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is missing.
    #[error(
        "{program} was not found; install it with `apt-get install redis-server`, \
         `dnf install redis` or `brew install redis`"
    )]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// The server ended before it was ready, for instance because of an unknown argument.
    #[error("the server ended before it was ready; its log says:\n{log}")]
    Ended {
        /// The server's log.
        log: String,
    },
    /// The server runs, but was not ready in time.
    #[error("the server was not ready within {START_LIMIT:?}; its log says:\n{log}")]
    NotReady {
        /// The server's log.
        log: String,
    },
    /// Several times another program took the port before the server could.
    #[error("no free port: each was taken before the server could open it")]
    PortTaken,
    /// A process or a directory could not be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a group of servers could not be set up or changed, in words: a process did not start, a server refused a
/// command, or the servers did not reach a state in time.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TopologyError(String);

impl From<SpawnError> for TopologyError {
    fn from(error: SpawnError) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for TopologyError {
    fn from(text: String) -> Self {
        Self(text)
    }
}
