//! What processes and servers say to each other.

use std::time::Duration;

use redlock_tokio::{
    Key, NodeError, Token,
    node::{Answer, Command, KeyState, LineAnswer, LineRequest, Operation, Server as Described},
};

use crate::{clock::MILLI, requests::ServiceId};

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
    Called(Key),
}

/// What a connection loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loses {
    Requests,
    Answers,
}

/// A connection on which something was lost that its process waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    pub(crate) connection: ConnectionId,
    pub(crate) process: usize,
    /// When the request was sent that gets no answer.
    pub(crate) sent: u64,
    /// How long the process may wait for it.
    pub(crate) limit: u64,
}

impl Unanswered {
    /// Returns by when the connection is given up, if the process does not stand still after this time.
    pub(crate) fn due(&self, since: u64) -> u64 {
        // What the slowest clock adds, and a step of the process.
        self.sent.max(since) + self.limit + self.limit / 50 + 20 * MILLI
    }
}

/// Returns the error of a server that refuses a command.
pub(crate) fn refused(code: &str, message: &str) -> NodeError {
    NodeError::Refused {
        code: code.into(),
        message: message.into(),
    }
}
