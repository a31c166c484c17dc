use core::time::Duration;

use crate::{Drift, Timestamp, Ttl};

/// The delayed restart, enforced by the client: a node that came up less than the longest ttl ago has
/// no vote, because it may have forgotten a lock that is still held.
///
/// "If we make an instance, after a crash, unavailable for at least a bit more than the max ttl we
/// use [..] all the keys about the locks that existed when the instance crashed will become invalid
/// and be automatically released" (the Redlock page, "Performance, crash recovery and fsync").
/// Operators forget to delay a restart; a client can see that it was not delayed.
///
/// It must gate votes for `SET` *and* for extensions. Every client must use the same longest ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    length: Duration,
}

impl Quarantine {
    /// Creates the quarantine for locks whose ttl is at most `max_ttl`.
    #[must_use]
    pub fn new(max_ttl: Ttl, drift: Drift) -> Self {
        let length = max_ttl.as_duration();
        Self {
            length: length.saturating_add(drift.allowance(max_ttl)),
        }
    }

    /// Returns how long a node has no vote after it came up.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.length
    }

    /// Returns when a node may vote that has said that it is up for `uptime`, in whole seconds as
    /// Redis does. `now` must be read *after* its answer came: read before it was asked, each
    /// millisecond that the answer took would shorten the quarantine.
    ///
    /// Both ends of that uptime are rounded down to a second, so the node may have come up a second
    /// later than it says.
    #[must_use]
    pub fn eligible_at(self, now: Timestamp, uptime: Duration) -> Timestamp {
        self.ends_at(now, uptime.saturating_sub(Duration::from_secs(1)))
    }

    /// Returns when it ends for a node of which it is certain at `now` that it has been the same one
    /// for `age`.
    pub(crate) fn ends_at(self, now: Timestamp, age: Duration) -> Timestamp {
        now.saturating_add(self.length.saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_votes_once_every_lock_it_may_have_forgotten_is_over() {
        let second = Duration::from_secs(1);
        let max_ttl = Ttl::new(10 * second).unwrap();
        let quarantine = Quarantine::new(max_ttl, Drift::new(0, second));
        assert_eq!(quarantine.length(), 11 * second);
        let now = Timestamp::ZERO.saturating_add(100 * second);
        let wait = |uptime| {
            quarantine
                .eligible_at(now, uptime)
                .saturating_duration_since(now)
        };
        assert_eq!(wait(Duration::ZERO), 11 * second);
        assert_eq!(wait(second), 11 * second, "it may have come up just now");
        assert_eq!(wait(5 * second), 7 * second);
        assert_eq!(wait(12 * second), Duration::ZERO);
        assert_eq!(wait(Duration::MAX), Duration::ZERO);
    }
}
