use std::{net::SocketAddr, time::Duration};

use deadpool_redis::redis::RedisError;
use thiserror::Error;

use super::spawn_error::SpawnError;

/// Why a group of servers could not be set up or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A process could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A server refused a command, or did not answer it.
    #[error("the server at {server} did not carry out {command}")]
    Command {
        /// The server's address.
        server: SocketAddr,
        /// The command's name and its first arguments.
        command: String,
        /// The server's answer, or why there was none.
        source: RedisError,
    },
    /// The servers did not reach a state in time.
    #[error("not within {limit:?}: {goal}; at last: {state}")]
    TimedOut {
        /// The state that the servers should have reached.
        goal: String,
        /// How long the servers had.
        limit: Duration,
        /// The state of the servers when the time was up.
        state: String,
    },
}
