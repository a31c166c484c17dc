use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{Access, FencingToken, Nonce, Operation, Reply, Slot, SlotSet, Timestamp, Ttl};

use super::{Holder, NodeError};
use crate::{
    client_name::{ClientName, Value},
    key::{Key, KeySet},
};

/// A request to a node: an [operation](Operation) on one key or on several.
///
/// Cheap to clone: the same command goes to all nodes.
///
/// ```
/// use redlock_tokio::{
///     Key, Token,
///     node::{Command, Operation},
/// };
///
/// # fn example(token: Token) -> Result<(), redlock_tokio::errors::KeyError> {
/// let command = Command::new(Key::new("order:42")?, Operation::Release { token });
/// assert_eq!(command.key().as_bytes(), b"order:42");
/// assert_eq!(command.value(), token.to_ascii());
/// // A release has neither.
/// assert_eq!((command.ttl(), command.fence()), (None, None));
/// # Ok(())
/// # }
/// # example(redlock_core::Nonce::new(7).token(1)).unwrap();
/// ```
#[derive(Clone)]
pub struct Command(Arc<Content>);

struct Content {
    keys: KeySet,
    operation: Operation,
    value: Value,
    /// The value that the key must have for an adoption.
    giver: Option<Holder>,
    access: Access,
    /// The slots of a semaphore, each of which is probed on its own, if the keys are theirs.
    slots: SlotSet,
}

impl Command {
    /// The length of a nonce on the wire, in bytes.
    const NONCE_LEN: usize = 32;

    /// Creates a command for one key that nobody else may have.
    #[must_use]
    pub fn new(key: Key, operation: Operation) -> Self {
        Self::with_access(key, operation, Access::Exclusive)
    }

    /// Creates a command for one key, which a writer or a reader wants, for example.
    #[must_use]
    pub fn with_access(key: Key, operation: Operation, access: Access) -> Self {
        Self::for_all(key.into(), operation, access, &ClientName::NONE)
    }

    /// Creates a command for several keys. A node grants it only if it holds for all of them.
    pub(crate) fn for_all(
        keys: KeySet,
        operation: Operation,
        access: Access,
        client: &ClientName,
    ) -> Self {
        let giver = match operation {
            Operation::Adopt { giver, .. } => Some(Holder::new(giver.to_ascii())),
            _ => None,
        };
        Self(Arc::new(Content {
            keys,
            operation,
            value: client.value_of(operation.token()),
            giver,
            access,
            slots: SlotSet::EMPTY,
        }))
    }

    /// Creates an adoption of a key that has the giver's value now.
    pub(crate) fn adoption(
        key: Key,
        giver: Holder,
        operation: Operation,
        client: &ClientName,
    ) -> Self {
        Self(Arc::new(Content {
            keys: key.into(),
            operation,
            value: client.value_of(operation.token()),
            giver: Some(giver),
            access: Access::Exclusive,
            slots: SlotSet::EMPTY,
        }))
    }

    /// Creates a release of a key that another client has with this value.
    pub(crate) fn forced_release(key: Key, holder: &Holder, access: Access) -> Self {
        // Values of other libraries are no tokens. Nodes go by the value.
        let token = holder.token().unwrap_or(Nonce::new(0).token(0));
        Self(Arc::new(Content {
            keys: key.into(),
            operation: Operation::Release { token },
            value: Value::from_slice(holder.value()),
            giver: None,
            access,
            slots: SlotSet::EMPTY,
        }))
    }

    /// Creates a probe of these slots of a semaphore, whose keys these are.
    pub(crate) fn for_slots(keys: KeySet, slots: SlotSet, probe: Operation) -> Self {
        Self(Arc::new(Content {
            keys,
            operation: probe,
            value: Value::new(),
            giver: None,
            access: Access::Slots,
            slots,
        }))
    }

    /// Returns the key, or the first of several.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.keys.first()
    }

    /// Returns all keys. A node sets all of them or none. It grants another operation only if each of them has the
    /// value.
    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.0.keys.iter()
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.0.keys.count()
    }

    pub(crate) fn has_several_keys(&self) -> bool {
        self.0.keys.has_several()
    }

    /// Returns whether this is a probe of slots of a semaphore. The answer is then [`Vote::slots`] of the
    /// [slots](Self::probed_slots). A node that answers as for a lock of several keys makes waiters wait until all slots are
    /// free.
    #[must_use]
    pub fn probes_slots(&self) -> bool {
        matches!(self.0.access, Access::Slots)
    }

    /// Returns the slots of a semaphore that this probes, and the key of each. Nothing if it is another command.
    pub fn probed_slots(&self) -> impl Iterator<Item = (Slot, &Key)> {
        self.0.slots.iter().zip(self.keys())
    }

    /// Returns who else may have the key. [`Access`] says what a node does for a reader and for a writer.
    ///
    /// A node that treats all of them as [`Access::Exclusive`] is safe, but it lets one reader in at a time.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    pub(crate) fn is_readers(&self) -> bool {
        matches!(self.0.access, Access::Reader { .. })
    }

    /// Returns the value of the mark that this lease sets and deletes, if it is or was a writer's.
    pub(crate) fn mark(&self) -> &[u8] {
        // A token begins with the nonce of its lease.
        &self.0.value[..Self::NONCE_LEN.min(self.0.value.len())]
    }

    /// Returns the operation on the keys.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Returns the value that the operation sets, or that a key must have for it: the operation's token as it goes over
    /// the wire, and the [name of the client](crate::RedlockBuilder::client_name). A node compares values whole.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.0.value
    }

    /// Returns the value that the key must have if this is an [adoption](Operation::Adopt), which then sets the key to
    /// [`value`](Self::value). A node compares values whole.
    #[must_use]
    pub fn giver(&self) -> Option<&[u8]> {
        self.0.giver.as_ref().map(Holder::value)
    }

    /// Returns the time to live that the operation gives the keys, if it acquires, adopts or extends them.
    #[must_use]
    pub fn ttl(&self) -> Option<Ttl> {
        match self.0.operation {
            Operation::Acquire { ttl, .. }
            | Operation::Adopt { ttl, .. }
            | Operation::Extend { ttl, .. } => Some(ttl),
            _ => None,
        }
    }

    /// Returns the fencing token to which the operation raises the counter of each key, if it does.
    ///
    /// A node raises the counters that are smaller. If one of them was not, it answers [`Vote::Outbid`] with the largest.
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        match self.0.operation {
            Operation::Acquire { fence, .. } | Operation::Adopt { fence, .. } => fence,
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

/// A node's answer to one command.
pub type Answer = Result<Vote, NodeError>;

/// A node's answer to a command that it carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// The node did as asked.
    Granted,
    /// The node extended the key, and returns the time that the key had left. A lock detects by it that the
    /// node's clock has jumped, or that somebody has changed the key's expiry. [`Granted`](Self::Granted) is a
    /// full answer, too.
    Extended {
        /// How long the key would have lived without the extension.
        remaining: Duration,
    },
    /// The node did nothing, because the key has another value or is gone.
    Denied,
    /// The answer to a probe: the node does not have the key.
    Free,
    /// The answer to a probe: the node has the key, or one of several.
    Taken {
        /// How long the key will live unless it is extended or released. [`Duration::MAX`] for a key without
        /// an end.
        remaining: Duration,
        /// The client that has the key. `None` if the node does not tell, or if there are several keys.
        by: Option<Holder>,
    },
    /// The answer to a reader's probe: the key is free or shared, but a writer that waits has marked it.
    Marked {
        /// How long the mark will live unless the writer marks the key again. [`Duration::MAX`] for one without an end.
        remaining: Duration,
    },
    /// The answer to a probe of [slots](Command::probed_slots) of a semaphore.
    Slots {
        /// The slots that the node does not have.
        free: SlotSet,
        /// The slots that the node has.
        taken: SlotSet,
        /// The one of these that expires first.
        next: Slot,
        /// How long that slot will live. [`Duration::MAX`] if all are free, or if none of the others has an end.
        remaining: Duration,
    },
    /// The keys are ours, but the fencing counter of one of them is not smaller than the fence. The node left such
    /// counters unchanged.
    Outbid {
        /// The counter, or the largest of several.
        counter: FencingToken,
    },
}

impl Vote {
    /// Returns the answer to a probe of slots, from the time that each slot has left. `None` is a slot that is free.
    #[must_use]
    pub fn slots(remaining: impl IntoIterator<Item = (Slot, Option<Duration>)>) -> Self {
        let (mut free, mut taken) = (SlotSet::EMPTY, SlotSet::EMPTY);
        let mut soonest = (Duration::MAX, Slot::FIRST);
        for (slot, left) in remaining {
            if let Some(left) = left {
                taken.insert(slot);
                soonest = soonest.min((left, slot));
            } else {
                free.insert(slot);
            }
        }
        let (remaining, next) = soonest;
        Self::Slots {
            free,
            taken,
            next,
            remaining,
        }
    }
}

/// Returns an answer that came at `now` in the words of the algorithm.
pub(crate) fn reply_of(answer: &Answer, now: Timestamp) -> Reply {
    match answer {
        Ok(Vote::Free) => Reply::Free,
        Ok(Vote::Taken { remaining, .. }) => Reply::taken_for(now, *remaining),
        Ok(Vote::Marked { remaining }) => Reply::marked_for(now, *remaining),
        Ok(Vote::Slots {
            free,
            taken,
            next,
            remaining,
        }) => Reply::slots(*free, *taken, *next, now, *remaining),
        Ok(Vote::Granted | Vote::Extended { .. }) => Reply::Granted,
        Ok(Vote::Denied) => Reply::Denied,
        Ok(Vote::Outbid { counter }) => Reply::Outbid { counter: *counter },
        Err(error) => error.reply(),
    }
}
