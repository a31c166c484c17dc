use core::time::Duration;

use crate::{Drift, Ttl};

/// How long a confirmation of an owner counts, and how long an owner must have been confirmed before it
/// votes. See [`OwnerWatch`](crate::OwnerWatch).
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, OwnerRule, Ttl, TtlError};
///
/// let second = Duration::from_secs(1);
/// let drift = Drift::new(10, Duration::ZERO);
/// let rule = OwnerRule::new(Ttl::new(10 * second)?, drift, 3 * second);
/// assert_eq!(rule.settling(), Duration::from_millis(13_130));
/// # Ok::<(), TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRule {
    window: Duration,
    settling: Duration,
    fewest_members: usize,
}

impl OwnerRule {
    /// The window unless another is chosen: 3 s.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(3);

    /// Creates the rule for locks whose ttl is at most `max_ttl`. A confirmation counts for `window`.
    ///
    /// All clients must use the same window and the same longest ttl. A client waits for as long as its own
    /// rule says, and that must cover the window and the ttl of each other client. The window may be longer
    /// than a ttl. But a longer window makes the outage after a failover longer.
    #[must_use]
    pub fn new(max_ttl: Ttl, drift: Drift, window: Duration) -> Self {
        let settling = max_ttl.as_duration().saturating_add(window);
        // The allowance is for the whole time.
        let allowance = drift.allowance(Ttl::at_least(settling));
        Self {
            window,
            settling: settling.saturating_add(allowance),
            fewest_members: 1,
        }
    }

    /// Counts an authority as one of at least this many members, even while the members that answer know
    /// fewer.
    ///
    /// A sentinel that has lost its state knows no other sentinel, and names the master of its
    /// configuration. Without this method it would be a majority of itself for a client that reaches no
    /// other. Pass the number of the sentinels that are listed. If the list is longer than the group, more
    /// members must agree.
    #[must_use]
    pub const fn with_fewest_members(self, members: usize) -> Self {
        Self {
            fewest_members: members,
            ..self
        }
    }

    /// Lets an owner vote as soon as it is confirmed. For servers whose failovers
    /// [lose nothing](crate::Voter::lossless), and for tests: another owner may lack locks.
    #[must_use]
    pub const fn without_settling(self) -> Self {
        Self {
            settling: Duration::ZERO,
            ..self
        }
    }

    /// Returns how long a confirmation counts.
    #[must_use]
    pub const fn window(self) -> Duration {
        self.window
    }

    /// Returns for how long an owner must have been confirmed before its votes count: the longest ttl, one
    /// window, and the drift allowance for both.
    #[must_use]
    pub const fn settling(self) -> Duration {
        self.settling
    }

    /// Returns the shortest time in which another owner can have settled, voted, and been replaced again while a
    /// confirmation of it still counted: the longest ttl and the drift allowance. Endless if nobody settles.
    pub(crate) const fn longest_gap(self) -> Duration {
        if self.settling.is_zero() {
            return Duration::MAX;
        }
        self.settling.saturating_sub(self.window)
    }

    /// Returns how many of this number of members are a majority.
    pub(crate) fn majority(self, members: usize) -> usize {
        members.max(self.fewest_members) / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn settling_covers_the_longest_ttl_the_window_and_the_drift_of_both() {
        let drift = Drift::new(10, Duration::from_millis(2));
        let rule = OwnerRule::new(Ttl::new(10 * SECOND).unwrap(), drift, 2 * SECOND);
        assert_eq!(rule.window(), 2 * SECOND);
        assert_eq!(rule.settling(), Duration::from_millis(12_000 + 120 + 2));
    }

    #[test]
    fn settling_saturates() {
        let most = OwnerRule::new(Ttl::MAX, Drift::default(), Duration::MAX);
        assert_eq!(most.settling(), Duration::MAX);
        // An allowance for the longest ttl at least.
        let long = OwnerRule::new(Ttl::MAX, Drift::default(), SECOND);
        let allowance = Drift::default().allowance(Ttl::MAX);
        assert_eq!(long.settling(), Ttl::MAX.as_duration() + SECOND + allowance);
    }

    #[test]
    fn a_majority_is_more_than_half_of_at_least_the_fewest_members() {
        let rule = OwnerRule::new(Ttl::MAX, Drift::default(), SECOND);
        let majorities = |rule: OwnerRule| [1, 2, 3, 4, 5].map(|members| rule.majority(members));
        assert_eq!(majorities(rule), [1, 2, 2, 3, 3]);
        assert_eq!(majorities(rule.with_fewest_members(3)), [2, 2, 2, 3, 3]);
    }
}
