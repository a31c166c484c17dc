//! What processes and servers say to each other.

use std::time::Duration;

use redlock_tokio::{Answer, Command, NodeError, Operation, Server as Described, Token};

use crate::requests::ServiceId;

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
        self.released().next().is_some()
    }

    /// Returns the tokens whose keys it is to release.
    pub(crate) fn released(&self) -> impl Iterator<Item = Token> {
        let commands = match self {
            Self::Execute(commands) => &**commands,
            _ => &[],
        };
        commands.iter().filter_map(|it| match it.operation() {
            Operation::Release { token } => Some(token),
            _ => None,
        })
    }
}

/// What a server says to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Described(Described),
    Executed(Vec<Answer>),
    Age(Duration),
    /// The server, or the session, refuses the question.
    Refused(NodeError),
}

pub(crate) type Reply = Result<Response, NodeError>;

/// A request that reaches a server.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: ConnectionId,
    pub(crate) server: usize,
    /// Who sent it.
    pub(crate) service: ServiceId,
    pub(crate) number: u64,
    pub(crate) request: Request,
}
