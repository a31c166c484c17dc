//! What processes and servers say to each other.

use std::time::Duration;

use redlock_tokio::{
    Key, NodeError, Token,
    node::{Answer, Command, KeyState, LineAnswer, LineRequest, Operation, Server as Described},
};

use crate::requests::ServiceId;

/// How long an inspection may take, as on a connection to Redis.
pub(crate) const INSPECTION_LIMIT: Duration = Duration::from_secs(5);

/// The number of a connection, in the order in which they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A question to a server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Describe,
    Execute(Vec<Command>),
    LookUp(Key),
    Line(Vec<LineRequest>),
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
    Found(KeyState),
    InLine(Vec<LineAnswer>),
    Age(Duration),
}

/// An error if the server refuses the question, or the connection breaks.
pub(crate) type Reply = Result<Response, NodeError>;

/// A request that reaches a server.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: ConnectionId,
    pub(crate) server: usize,
    /// The `Redlock` that sent it.
    pub(crate) service: ServiceId,
    pub(crate) number: u64,
    pub(crate) request: Request,
}

/// Something that a server sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Freed(Key),
    AllFreed,
    Called(Key, bool),
}

/// What a connection loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loses {
    Requests,
    Answers,
}

/// Returns the error of a server that refuses a command.
pub(crate) fn refused(code: &str, message: &str) -> NodeError {
    NodeError::Refused {
        code: code.into(),
        message: message.into(),
    }
}
