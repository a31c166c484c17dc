use core::time::Duration;

use crate::Timestamp;

/// What one node's votes are worth, as far as its [`Voter`](crate::Voter) knows.
///
/// The driver hands it back with each reply of that node, whatever the operation was, and the round
/// that gets the reply decides. Only the `Voter` makes one that holds votes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eligibility {
    /// The node has no vote in a round that starts before this.
    since: Timestamp,
}

impl Eligibility {
    /// The worth of a node that cannot have forgotten a lock, such as one within the process. It
    /// also goes with a reply that is no vote: an error, or silence.
    pub const ALWAYS: Self = Self::since(Timestamp::ZERO);

    /// Creates the worth of a node that has a vote in each round that starts at `since` or later.
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

    /// Returns for how long the node has no vote yet: zero if it has one.
    #[must_use]
    pub fn remaining(self, now: Timestamp) -> Duration {
        self.since.saturating_duration_since(now)
    }
}
