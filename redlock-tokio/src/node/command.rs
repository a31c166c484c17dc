use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{FencingToken, Operation, Reply, Timestamp, Token, Ttl};

use super::NodeError;
use crate::key::{Key, KeySet};

/// What a node is asked to do with a key.
///
/// Cheap to clone: all nodes that are asked share it.
#[derive(Clone)]
pub struct Command(Arc<Content>);

struct Content {
    keys: KeySet,
    operation: Operation,
    token: [u8; Token::LEN],
}

impl Command {
    /// Creates a command.
    #[must_use]
    pub fn new(key: Key, operation: Operation) -> Self {
        Self::for_all(key.into(), operation)
    }

    /// Creates a command for several keys at once, which is carried out for all of them or for none.
    pub(crate) fn for_all(keys: KeySet, operation: Operation) -> Self {
        Self(Arc::new(Content {
            keys,
            operation,
            token: operation.token().to_ascii(),
        }))
    }

    /// Returns the key; the first of them, if the lock has several.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.keys.first()
    }

    /// Returns all keys. What is asked must be done to all of them, or to none.
    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.0.keys.iter()
    }

    /// Returns how many keys there are.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.0.keys.count()
    }

    /// Returns whether there is more than one key.
    pub(crate) fn has_several_keys(&self) -> bool {
        self.0.keys.has_several()
    }

    /// Returns what to do with the keys.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Returns the operation's token as it goes over the wire.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.0.token
    }

    /// Returns how long the keys shall live from now, if the operation acquires or extends them.
    #[must_use]
    pub fn ttl(&self) -> Option<Ttl> {
        match self.0.operation {
            Operation::Acquire { ttl, .. } | Operation::Extend { ttl, .. } => Some(ttl),
            _ => None,
        }
    }

    /// Returns the fencing token to which the key's counter shall be raised, if the operation raises it.
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        match self.0.operation {
            Operation::Acquire { fence, .. } => fence,
            Operation::Fence { fence, .. } => Some(fence),
            _ => None,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("key", self.key())
            .field("operation", &self.operation())
            .finish()
    }
}

/// What a node says to one command.
pub type Answer = Result<Vote, NodeError>;

/// A node's answer to a command that it carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It did what was asked.
    Granted,
    /// It extended the key, and tells what it had left, which shows whether its clock has jumped or
    /// somebody has changed the key's expiry. [`Granted`](Self::Granted) is as good.
    Extended {
        /// How long the key would have lived without it.
        remaining: Duration,
    },
    /// It did not, because the key is another's, or not ours any more.
    Denied,
    /// It was asked to look, and does not have the key.
    Free,
    /// It was asked to look, and has the key, or one of several.
    Taken {
        /// For how long, unless it is extended or released; for ever if it has no end.
        remaining: Duration,
    },
    /// The key is ours, but its fencing counter is no smaller than the fence, and was left alone.
    Outbid {
        /// The counter.
        counter: FencingToken,
    },
}

/// Returns what an answer that came at `now` is to the algorithm.
pub(crate) fn reply_of(answer: &Answer, now: Timestamp) -> Reply {
    match answer {
        Ok(Vote::Free) => Reply::Free,
        Ok(Vote::Taken { remaining }) => Reply::taken_for(now, *remaining),
        Ok(Vote::Granted | Vote::Extended { .. }) => Reply::Granted,
        Ok(Vote::Denied) => Reply::Denied,
        Ok(Vote::Outbid { counter }) => Reply::Outbid { counter: *counter },
        Err(error) => error.reply(),
    }
}
