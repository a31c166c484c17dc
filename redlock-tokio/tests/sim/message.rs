//! What processes and servers say to each other.

use std::time::Duration;

use redlock_tokio::{Answer, Command, NodeError, Operation, Server as Described};

/// The number of a connection, in the order in which they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A question to a server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Describe,
    Execute(Vec<Command>),
    HistoryAge,
    TenureAge { epoch: u64 },
}

impl Request {
    /// Returns whether it is to release keys.
    pub(crate) fn releases(&self) -> bool {
        let is_release = |it: &Command| matches!(it.operation(), Operation::Release { .. });
        matches!(self, Self::Execute(commands) if commands.iter().any(is_release))
    }
}

/// What a server says to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Described(Described),
    Executed(Vec<Answer>),
    Age(Duration),
}

pub(crate) type Reply = Result<Response, NodeError>;

/// A request that reaches a server.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: ConnectionId,
    pub(crate) server: usize,
    pub(crate) number: u64,
    pub(crate) request: Request,
}
