use deadpool_redis::redis::Value;
use redlock_core::Operation;

use super::sharing::Sharing;

use crate::node::{
    Command,
    redis::server_error::{concerns_server, is_denied_key},
};

pub(super) struct Part {
    pub(super) ask: Ask,
    pub(super) positions: Positions,
}

/// The positions in the batch of the commands that a part is for.
pub(super) enum Positions {
    One([usize; 1]),
    Many(Vec<usize>),
}

impl Positions {
    pub(super) fn as_slice(&self) -> &[usize] {
        match self {
            Self::One(position) => position,
            Self::Many(positions) => positions,
        }
    }
}

impl From<usize> for Positions {
    fn from(position: usize) -> Self {
        Self::One([position])
    }
}

/// A way to ask a server for what one or several commands of a batch want.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    /// `SET .. NX`.
    Set,
    Scripted(Scripted, Call),
    /// `CLIENT CACHING YES`, `MGET` of slots to be tracked, or the mark of a writer. The reply is ignored.
    Ignored,
    /// `MGET` of keys to be tracked that were just extended. One that has another value by now is denied.
    Extended,
    /// `PTTL`, of a key whose holder was asked for.
    TimeLeft,
    /// `PTTL`, of a key that anybody may hold.
    Probe,
    /// `MGET`, of a key that a reader looks at.
    Value,
    /// `PTTL`, of the mark of a writer.
    Mark,
    /// Acquires several keys or none, or adopts a key, by a script that is sent in full.
    InFull,
}

/// What a script that is loaded is for.
#[derive(Clone, Copy)]
pub(super) enum Scripted {
    Shared(Shared),
    /// A command of a reader or a writer.
    Sharing(Sharing),
    /// The time that each slot of a semaphore has left.
    Slots,
}

/// How a script that is loaded is called. A session decides once, by its rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::node::redis) enum Call {
    ByHash,
    InFull,
}

/// What many keys share: a script, or an `MGET`.
#[derive(Clone, Copy)]
pub(super) enum Shared {
    Extensions,
    Releases,
    /// The raising of fencing counters, after the keys were set.
    Fences,
    /// A question for the holders of keys that are probed, by `MGET`.
    Holders,
}

impl Shared {
    /// Returns the script that a command can share, of those that are sent before all else; `None` if it can share none.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match command.operation() {
            _ if Sharing::of(command).is_some() => None,
            Operation::Extend { .. } => Some(Self::Extensions),
            Operation::Release { .. } => Some(Self::Releases),
            _ => None,
        }
    }
}

impl Part {
    /// Returns how to ask again for each command on its own, because of the reply; `None` if the reply is an answer.
    pub(super) fn again(&self, reply: &Value) -> Option<(Scripted, Call)> {
        let (Ask::Scripted(scripted, by), Value::ServerError(error)) = (self.ask, reply) else {
            return None;
        };
        match scripted {
            // Somebody flushed the scripts, or they could not be loaded.
            _ if error.code() == "NOSCRIPT" && by == Call::ByHash => Some((scripted, Call::InFull)),
            // One key among them may be the cause.
            Scripted::Shared(_)
                if self.positions.as_slice().len() > 1 && !concerns_server(error) =>
            {
                Some((scripted, Call::InFull))
            }
            // Without a right to the names beside the key, a token is still deleted as that of a plain lock.
            Scripted::Sharing(Sharing::ReleaseReader | Sharing::ReleaseWriter)
                if is_denied_key(error) =>
            {
                Some((Scripted::Shared(Shared::Releases), by))
            }
            _ => None,
        }
    }
}
