use core::time::Duration;

use crate::Timestamp;

/// The worth of one node's votes, as far as its [`Voter`](crate::Voter) knows.
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
/// assert!(!eligibility.until(since).covers(Timestamp::from_nanos(1_001)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eligibility {
    /// The node has no vote in a round that starts before this.
    since: Timestamp,
    /// The node has no vote in a round that starts after this.
    until: Timestamp,
}

impl Eligibility {
    /// The eligibility of a node that cannot have forgotten a lock, such as one within the process. It
    /// also goes with a reply that is not a vote: an error, or silence.
    pub const ALWAYS: Self = Self::since(Timestamp::ZERO);

    /// The eligibility of a node that has no vote in any round, and of which nobody knows when it will
    /// have one.
    pub const NEVER: Self = Self {
        since: Timestamp::MAX,
        until: Timestamp::ZERO,
    };

    /// Creates the eligibility of a node that has a vote in each round that starts at `since` or later.
    #[must_use]
    pub const fn since(since: Timestamp) -> Self {
        Self {
            since,
            until: Timestamp::MAX,
        }
    }

    /// Returns this eligibility for rounds that start at `until` at the latest.
    #[must_use]
    pub fn until(self, until: Timestamp) -> Self {
        Self {
            until: self.until.min(until),
            ..self
        }
    }

    /// Returns the eligibility for the rounds that both cover.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            since: self.since.max(other.since),
            until: self.until.min(other.until),
        }
    }

    /// Returns whether the node has a vote in a round that starts at `start`.
    ///
    /// The quarantine must be over when the round *starts*, not when the reply comes: the node may
    /// have acted at any time in between.
    #[must_use]
    pub fn covers(self, start: Timestamp) -> bool {
        self.since <= start && start <= self.until
    }

    /// Returns the earliest start of a round in which the node has a vote.
    #[must_use]
    pub const fn starts_at(self) -> Timestamp {
        self.since
    }

    /// Returns the latest start of a round in which the node has a vote. [`Timestamp::MAX`] if there is no
    /// such time.
    #[must_use]
    pub const fn ends_at(self) -> Timestamp {
        self.until
    }

    /// Returns whether the node has no vote in a round that starts at `start`, and nobody knows when it will
    /// have one: its server is not confirmed as the owner.
    #[must_use]
    pub fn is_unconfirmed(self, start: Timestamp) -> bool {
        self.until < start || self.since == Timestamp::MAX
    }

    /// Returns the time until the [start](Self::starts_at), or zero if that has passed. The eligibility may
    /// have [ended](Self::ends_at) since.
    #[must_use]
    pub fn remaining(self, now: Timestamp) -> Duration {
        self.since.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_unconfirmed_if_its_vote_has_ended_or_nobody_knows_when_it_begins() {
        let [before, now, after] = [4, 5, 6].map(Timestamp::from_nanos);
        for unconfirmed in [Eligibility::NEVER, Eligibility::ALWAYS.until(before)] {
            assert!(unconfirmed.is_unconfirmed(now), "{unconfirmed:?}");
        }
        let known = [
            Eligibility::ALWAYS,
            Eligibility::ALWAYS.until(now),
            Eligibility::since(after),
        ];
        for known in known {
            assert!(!known.is_unconfirmed(now), "{known:?}");
        }
    }
}
