use core::time::Duration;

use crate::{Drift, Timestamp, Ttl};

/// The time for which a node has no vote after it came up, because it may have forgotten a lock that is
/// still held: the longest ttl, and the drift allowance.
///
/// "If we make an instance, after a crash, unavailable for at least a bit more than the max ttl we
/// use [..] all the keys about the locks that existed when the instance crashed will become invalid
/// and be automatically released" (the Redlock page, "Performance, crash recovery and fsync").
/// Operators forget to delay a restart. A client can see how long a node has been up, and delay its votes.
///
/// The quarantine must gate votes for `SET` *and* for extensions. Every client must use the same longest
/// ttl.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, Quarantine, Timestamp, Ttl, TtlError};
///
/// let second = Duration::from_secs(1);
/// let quarantine = Quarantine::new(Ttl::new(10 * second)?, Drift::new(0, second));
/// assert_eq!(quarantine.length(), 11 * second);
///
/// // A node that has been up for five seconds may vote in seven: its uptime is rounded.
/// let now = Timestamp::ZERO;
/// assert_eq!(quarantine.eligible_at(now, 5 * second), now.saturating_add(7 * second));
/// # Ok::<(), TtlError>(())
/// ```
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

    /// Returns when a node may vote that says that it has been up for `uptime`, in whole seconds.
    ///
    /// `now` must be read *after* the answer came. If it was read before the question left, each
    /// millisecond that the answer took would shorten the quarantine. The server rounds both ends of the
    /// uptime down to a second, so the node may have come up a second later than it says.
    #[must_use]
    pub fn eligible_at(self, now: Timestamp, uptime: Duration) -> Timestamp {
        self.ends_at(now, uptime.saturating_sub(Duration::from_secs(1)))
    }

    /// Returns when the quarantine ends for a node that is known at `now` to have kept its keys for
    /// `age`.
    pub(crate) fn ends_at(self, now: Timestamp, age: Duration) -> Timestamp {
        now.saturating_add(self.length.saturating_sub(age))
    }
}
