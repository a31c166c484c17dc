use std::{sync::Arc, time::Duration};

use redlock_core::Reply;
use thiserror::Error;

/// Why a node gave no vote.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection, so the command never left.
    #[error("not connected: {0}")]
    Unreachable(Arc<str>),
    /// The node answers, but will not work with this client until somebody changes something: the
    /// credentials, the database, the address. The command never left.
    #[error("misconfigured: {0}")]
    Misconfigured(Arc<str>),
    /// The node is a server that another node's address leads to as well, so it must not vote twice.
    #[error("the same server as {address}: one server must not vote twice")]
    SameServer {
        /// The address of the other node.
        address: Arc<str>,
    },
    /// The node has stopped answering, so the command was not sent.
    #[error("silent since an earlier request")]
    Silent,
    /// The node answers, but more slowly than it is asked, so the command was not sent.
    #[error("overloaded: too many requests wait for it")]
    Overloaded,
    /// The node answered with an error, so it did not carry out the command.
    #[error("{code} {message}")]
    Refused {
        /// The first word of the error, such as `OOM` or `NOPERM`.
        code: Arc<str>,
        /// The rest of it.
        message: Arc<str>,
    },
    /// Something else is where the lock's fencing counter should be. The command was not carried out,
    /// and nothing was changed.
    #[error("`{name}` is not a fencing counter, because it {defect}: delete it or rename it there")]
    NotACounter {
        /// The name of the counter on the node, with other than ASCII characters escaped.
        name: Arc<str>,
        /// What is wrong with what is there.
        defect: CounterDefect,
    },
    /// No answer came in time. The command may have been carried out, or still be.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke before the answer came. The command may have been carried out.
    #[error("connection lost: {0}")]
    Disconnected(Arc<str>),
    /// The answer makes no sense. The command may have been carried out.
    #[error("unexpected answer: {0}")]
    Unexpected(Arc<str>),
}

/// Why a key is not a fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CounterDefect {
    /// It is a list, a hash or the like.
    #[error("holds no text")]
    OtherType,
    /// Its text is no whole number.
    #[error("is no number")]
    NoNumber,
    /// Its number is beyond [`FencingToken::MAX`](crate::FencingToken::MAX).
    #[error("is beyond the largest token")]
    Beyond,
    /// It has a time to live; a counter has none.
    #[error("expires")]
    Expires,
}

impl NodeError {
    /// Returns whether the node is not any more what it was when it was connected to.
    pub(crate) fn is_change_of_role(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(&**code, "READONLY" | "MOVED" | "NOAUTH"),
            _ => false,
        }
    }

    /// Returns whether the node answers, but must not vote until somebody changes something.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Misconfigured(_) | Self::SameServer { .. })
    }

    /// Returns the error of a node whose code does not know the operation.
    pub(crate) fn unknown_operation() -> Self {
        Self::Refused {
            code: "UNSUPPORTED".into(),
            message: "the node does not know the operation".into(),
        }
    }

    /// Returns what the error means for a vote.
    pub(crate) fn reply(&self) -> Reply {
        match self {
            Self::Unreachable(_)
            | Self::Misconfigured(_)
            | Self::SameServer { .. }
            | Self::Silent
            | Self::Overloaded
            | Self::Refused { .. }
            | Self::NotACounter { .. } => Reply::Refused,
            Self::TimedOut(_) | Self::Disconnected(_) | Self::Unexpected(_) => Reply::Unknown,
        }
    }
}
