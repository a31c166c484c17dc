//! What a lease knows of its places in lines.

use redlock_core::{NodeId, Timestamp};
use smallvec::SmallVec;

use crate::engine::line::place::Place;

/// The places in the lines of the keys of a lease. A lease of several keys takes them one after the other, in the order of the
/// keys, so that two of them do not wait for each other.
#[derive(Debug)]
pub(super) struct Placed {
    /// The number of the wait.
    pub(super) wait: u32,
    /// How many of a line may try at a time.
    pub(super) active: u32,
    /// By the index of the key. The lease was the first in each but the last.
    pub(super) places: SmallVec<[(NodeId, Place); 1]>,
    /// Whether a node has told the process its place.
    pub(super) is_known: bool,
    /// Whether others stood before the lease.
    pub(super) has_waited: bool,
    /// Whether the lease keeps others from its keys, and until when that lasts.
    pub(super) keeps: Option<(bool, Timestamp)>,
    /// Since it was called: how it goes on.
    pub(super) called: Option<Called>,
}

/// How a process that is called goes on if its place lets it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Called {
    /// It watches the key from then on.
    WatchesAt(Timestamp),
    /// The lock is released, so it tries at once.
    Tries,
}

impl Called {
    pub(super) fn is_due(self, now: Timestamp) -> bool {
        match self {
            Self::WatchesAt(at) => at <= now,
            Self::Tries => true,
        }
    }
}

impl Placed {
    /// Returns whether others are to try first, at some key.
    pub(super) fn waits(&self) -> bool {
        self.places.iter().any(|(_, place)| !place.is_active())
    }

    /// Returns whether the process is not called at some node.
    pub(super) fn polls(&self) -> bool {
        self.places.iter().any(|(_, place)| place.polls())
    }

    pub(super) fn has_waited(&self) -> bool {
        self.has_waited
    }

    pub(super) fn timeout(&self) -> Option<Timestamp> {
        let places = self.places.iter();
        let due = places.filter_map(|(_, place)| place.timeout());
        let watches_at = match self.called {
            Some(Called::WatchesAt(at)) => Some(at),
            _ => None,
        };
        due.chain(self.keeps.map(|(_, until)| until))
            .chain(watches_at)
            .min()
    }
}
