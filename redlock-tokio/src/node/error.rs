use std::{sync::Arc, time::Duration};

use redlock_core::Reply;
use thiserror::Error;

/// What two slots of one server mean, and what to do.
pub(crate) const SHARED_SERVER: &str = "so that two votes would fail together: name a cluster by one URL only, move \
    one of the slots to another server, or accept that by allow_shared_servers=true; voters=1 and other tags are only \
    for a fleet of which no process runs, since they do not exclude processes that have the present voters";

/// Why a node gave no vote.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection. The command was not sent.
    #[error("not connected: {0}")]
    Unreachable(Arc<str>),
    /// The node answers, but refuses this client until somebody changes something: the credentials, the
    /// database, the address. The command was not sent.
    #[error("misconfigured: {0}")]
    Misconfigured(Arc<str>),
    /// There are no credentials for a connection. The command was not sent. See
    /// [`RedlockBuilder::credentials_from`](crate::RedlockBuilder::credentials_from).
    #[error("no credentials: {0}")]
    Credentials(Arc<str>),
    /// The address leads to the same server as another node's address. One server must not vote twice.
    #[error("the same server as {address}: one server must not vote twice")]
    SameServer {
        /// The address of the other node.
        address: Arc<str>,
    },
    /// The slot of a cluster is on the server of another slot that votes, and may not share it. Both votes would fail
    /// together.
    #[error("on {server} like {address}, {SHARED_SERVER}")]
    SharedServer {
        /// The name of the other voter.
        address: Arc<str>,
        /// The address of the server.
        server: Arc<str>,
    },
    /// The addresses of the servers that name the master, such as the seeds of a cluster, lead to two clusters, or to
    /// two groups of sentinels. Only one of them can be meant, so nobody gets a vote.
    #[error(
        "its addresses lead to two authorities: {member} and {other} do not know each other. Give the addresses of \
         one of them"
    )]
    TwoAuthorities {
        /// A member of one of them.
        member: Arc<str>,
        /// A member of the other one.
        other: Arc<str>,
    },
    /// The node has stopped answering. The command was not sent.
    #[error("silent since an earlier request")]
    Silent,
    /// The node answers more slowly than requests come in. The command was not sent.
    #[error("overloaded: too many requests are waiting")]
    Overloaded,
    /// The node answered with an error. It did not carry out the command.
    #[error("{code} {message}")]
    Refused {
        /// The first word of the error, such as `OOM` or `NOPERM`.
        code: Arc<str>,
        /// The rest of the error.
        message: Arc<str>,
    },
    /// The key of the lock's fencing counter holds something else, which the node left alone.
    #[error(
        "`{name}` is not a fencing counter, because it {defect}: delete it or rename it on the node"
    )]
    NotACounter {
        /// The name of the counter's key on the node, with other than ASCII characters escaped.
        name: Arc<str>,
        /// The fault of the key.
        defect: CounterDefect,
    },
    /// No answer came in time. The node may have carried out the command, or may still do so.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke before the answer came. The node may have carried out the command.
    #[error("connection lost: {0}")]
    Disconnected(Arc<str>),
    /// The answer makes no sense. The node may have carried out the command.
    #[error("unexpected answer: {0}")]
    Unexpected(Arc<str>),
}

/// Why a key is not a fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CounterDefect {
    /// The key holds a list, a hash or the like.
    #[error("is not a text")]
    OtherType,
    /// The text is not a whole number.
    #[error("is not a number")]
    NoNumber,
    /// The number exceeds [`FencingToken::MAX`](crate::FencingToken::MAX).
    #[error("exceeds the largest token")]
    Beyond,
}

impl NodeError {
    /// Returns whether the node has changed its role since it was connected to.
    pub(crate) fn is_change_of_role(&self) -> bool {
        matches!(self.code(), Some("READONLY" | "MOVED" | "NOAUTH"))
    }

    /// Returns whether the client lacks the right to a command or a key, or the server lacks the command.
    pub(crate) fn is_missing_right(&self) -> bool {
        matches!(self.code(), Some("NOPERM" | "ERR"))
    }

    /// Returns whether the node would refuse other keys for the same reason.
    pub(crate) fn is_of_the_node(&self) -> bool {
        self.code()
            .is_some_and(|code| !matches!(code, "WRONGTYPE" | "CROSSSLOT" | "UNSUPPORTED"))
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Returns whether the node must not vote until somebody changes something.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Misconfigured(_)
                | Self::SameServer { .. }
                | Self::SharedServer { .. }
                | Self::TwoAuthorities { .. }
        )
    }

    /// Returns the error of a node whose code does not know the operation.
    pub(crate) fn unknown_operation() -> Self {
        Self::Refused {
            code: "UNSUPPORTED".into(),
            message: "the node does not know the operation".into(),
        }
    }

    /// Returns the error in the words of the algorithm.
    pub(crate) fn reply(&self) -> Reply {
        match self {
            Self::Unreachable(_)
            | Self::Misconfigured(_)
            | Self::Credentials(_)
            | Self::SameServer { .. }
            | Self::SharedServer { .. }
            | Self::TwoAuthorities { .. }
            | Self::Silent
            | Self::Overloaded
            | Self::Refused { .. }
            | Self::NotACounter { .. } => Reply::Refused,
            Self::TimedOut(_) | Self::Disconnected(_) | Self::Unexpected(_) => Reply::Unknown,
        }
    }
}
