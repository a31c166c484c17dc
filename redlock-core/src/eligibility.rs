use core::time::Duration;

use crate::Timestamp;

/// What one node's votes are worth, by the knowledge of its [`Voter`](crate::Voter).
///
/// The driver gives it to the lease with each reply of that node, for every operation. The round that
/// gets the reply decides whether the vote counts.
///
/// ```
/// use redlock_core::{Eligibility, Timestamp};
///
/// let since = Timestamp::from_nanos(1_000);
/// let eligibility = Eligibility::since(since);
/// assert!(eligibility.covers(since));
/// assert!(!eligibility.covers(Timestamp::ZERO));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eligibility {
    /// The node has no vote in a round that starts before this.
    since: Timestamp,
}

impl Eligibility {
    /// The eligibility of a node that cannot have forgotten a lock, such as one within the process. It
    /// also goes with a reply that is no vote: an error, or silence.
    pub const ALWAYS: Self = Self::since(Timestamp::ZERO);

    /// Creates the eligibility of a node that has a vote in each round that starts at `since` or later.
    #[must_use]
    pub const fn since(since: Timestamp) -> Self {
        Self { since }
    }

    /// Returns whether the node has a vote in a round that starts at `start`.
    ///
    /// The quarantine must be over when the round *starts*, not when the reply comes: the node may
    /// have acted at any time in between.
    #[must_use]
    pub fn covers(self, start: Timestamp) -> bool {
        self.since <= start
    }

    /// Returns the earliest start of a round in which the node has a vote.
    #[must_use]
    pub const fn starts_at(self) -> Timestamp {
        self.since
    }

    /// Returns for how long the node has no vote yet, or zero if it has one.
    #[must_use]
    pub fn remaining(self, now: Timestamp) -> Duration {
        self.since.saturating_duration_since(now)
    }
}
