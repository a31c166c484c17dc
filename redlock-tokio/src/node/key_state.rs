use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::Holder;

/// The state of a key on one node, at one moment. Part of an [`InspectedNode`](crate::InspectedNode).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyState {
    /// Under the key itself: the one that holds a lock, or a writer. `None` if nobody does, or if readers do.
    pub lock: Option<Occupant>,
    /// The readers that share the key, at most 100 of them.
    pub readers: Vec<Occupant>,
    /// How long the mark of a writer that waits lives. [`Duration::MAX`] for one without an end.
    pub waiting_writer: Option<Duration>,
    /// The permits of the semaphore with this key that are taken, by their slots.
    pub permits: BTreeMap<usize, Occupant>,
    /// The processes that stand in the line of the key, and then those in the lines of its semaphores, by the names of
    /// their clients. The first of a line comes first. One that died may be there for some time. At most 100 of them.
    pub waiting: Vec<Option<Arc<str>>>,
}

impl KeyState {
    /// How many readers are looked up.
    #[doc(hidden)]
    pub const MAX_READERS: usize = 100;

    /// How many processes that wait are looked up.
    #[doc(hidden)]
    pub const MAX_WAITING: usize = 100;
}

/// The value of one name on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupant {
    /// The client that has it. `None` if the key is a list, a hash or the like, which no lock is.
    pub holder: Option<Holder>,
    /// How long it will live. `None` if it has no end.
    pub remaining: Option<Duration>,
}

impl Occupant {
    #[doc(hidden)]
    #[must_use]
    pub fn new(holder: Option<Holder>, remaining: Option<Duration>) -> Self {
        Self { holder, remaining }
    }
}

/// A step of a search for keys on one node. See [`Session::search`](super::Session::search).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundKeys {
    /// The keys. One of them may be there twice.
    pub keys: Vec<Box<[u8]>>,
    /// The cursor of the next step. `None` if this was the last one.
    pub next: Option<u64>,
}
