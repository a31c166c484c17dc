use deadpool_redis::redis::Value;
use redlock_core::Operation;

use super::sharing::Sharing;

use crate::node::{
    Command,
    redis::server_error::{concerns_server, is_denied_command, is_denied_key},
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
    /// Extensions or releases of many keys, or the raising of their fencing counters, by one script. Or a question for the
    /// holders of many keys, by one command.
    Shared(Shared, Call),
    /// A command of a reader or a writer, by a script.
    Sharing(Sharing, Call),
    /// `CLIENT CACHING YES`, `MGET` of slots to be tracked, or the mark of a writer. The reply is ignored.
    Ignored,
    /// `PTTL`, of a key whose holder was asked for.
    TimeLeft,
    /// `PTTL`, of a key that anybody may hold.
    Probe,
    /// Likewise, of slots of a semaphore, by a script.
    Slots(Call),
    /// `MGET`, of a key that a reader looks at.
    Value,
    /// `PTTL`, of the mark of a writer.
    Mark,
    /// Acquires several keys or none, or adopts a key, by a script that is sent in full.
    InFull,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    ByHash,
    InFull,
}

/// Commands that share a script, or an `MGET`.
#[derive(Clone, Copy)]
pub(super) enum Shared {
    Extensions,
    Releases,
    /// The raising of fencing counters, after the keys were set.
    Fences,
    /// A question for the holders of keys that are probed, by `MGET`.
    Holders,
}

/// Another way to ask, because a server refused the first one.
#[derive(Clone, Copy)]
pub(super) enum Fallback {
    /// By a script in full, for all keys at once.
    Together(Shared),
    /// By a script, for each key on its own.
    Apart(Shared, Call),
    /// By a script in full, of which this is the only one.
    Alone(Sharing),
    /// The same for slots of a semaphore.
    Slots,
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
    /// Returns how to ask again because of the reply; `None` if the reply is an answer.
    pub(super) fn fallback(&self, reply: &Value) -> Option<Fallback> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        // The server was restarted, somebody flushed its scripts, or only `EVAL` may be used.
        let hash_is_refused = error.code() == "NOSCRIPT" || is_denied_command(error);
        match self.ask {
            Ask::Shared(shared, Call::ByHash) if hash_is_refused => {
                Some(Fallback::Together(shared))
            }
            Ask::Sharing(sharing, Call::ByHash) if hash_is_refused => {
                Some(Fallback::Alone(sharing))
            }
            Ask::Slots(Call::ByHash) if hash_is_refused => Some(Fallback::Slots),
            // One key among them may be the cause.
            Ask::Shared(shared, _)
                if self.positions.as_slice().len() > 1 && !concerns_server(error) =>
            {
                Some(Fallback::Apart(shared, Call::InFull))
            }
            // Without a right to the names beside the key, a token is still deleted as that of a plain lock.
            Ask::Sharing(Sharing::ReleaseReader | Sharing::ReleaseWriter, by)
                if is_denied_key(error) =>
            {
                Some(Fallback::Apart(Shared::Releases, by))
            }
            _ => None,
        }
    }
}
