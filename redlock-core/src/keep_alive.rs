use core::{error::Error, fmt, time::Duration};

use crate::{Timestamp, Validity};

/// When a held lock is extended, and when renewal ends.
///
/// "The maximum number of lock reacquisition attempts should be limited, otherwise one of the
/// liveness properties is violated" (the Redlock page, "Making the algorithm more reliable"):
/// a holder that hangs must not block other clients for ever. The limit here is a time, `max_hold`. No
/// extension starts later than that after the lock was acquired, whether it is a renewal or on demand. So
/// a lock is held for at most `max_hold` plus the validity of its last extension.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, KeepAlive, Timestamp, Ttl, Validity};
///
/// let second = Duration::from_secs(1);
/// let validity = Validity::new(Ttl::new(9 * second)?, Drift::default())?;
/// let interval = KeepAlive::default_interval(validity);
/// assert_eq!(interval, 3 * second);
/// let keep_alive = KeepAlive::every(interval, 60 * second, validity)?;
///
/// let acquired_at = Timestamp::ZERO;
/// let next = keep_alive.next_extension(acquired_at, acquired_at);
/// assert_eq!(next, Some(acquired_at.saturating_add(3 * second)));
/// assert!(!keep_alive.allows(acquired_at, acquired_at.saturating_add(60 * second)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeepAlive {
    interval: Option<Duration>,
    max_hold: Duration,
}

impl KeepAlive {
    /// Creates a schedule that extends every `interval` until the lock was held for `max_hold`.
    ///
    /// # Errors
    ///
    /// Refuses an interval of zero, and an interval that is not shorter than the `validity` that it must
    /// renew.
    pub fn every(
        interval: Duration,
        max_hold: Duration,
        validity: Validity,
    ) -> Result<Self, KeepAliveError> {
        if interval.is_zero() || interval >= validity.span() {
            return Err(KeepAliveError {
                interval,
                span: validity.span(),
            });
        }
        Ok(Self {
            interval: Some(interval),
            max_hold,
        })
    }

    /// Creates a schedule that extends only on demand, until the lock was held for `max_hold`.
    #[must_use]
    pub const fn on_demand(max_hold: Duration) -> Self {
        Self {
            interval: None,
            max_hold,
        }
    }

    /// Returns the usual interval: a third of the ttl, so that two renewals may fail before the lock is in
    /// danger. Drift takes a large part of a very short ttl; then it is half of the validity.
    #[must_use]
    pub fn default_interval(validity: Validity) -> Duration {
        let third = validity.ttl().as_duration() / 3;
        third.min(validity.span() / 2)
    }

    /// Returns whether a held lock is extended by itself, and not only on demand.
    #[must_use]
    pub const fn renews(&self) -> bool {
        self.interval.is_some()
    }

    /// Returns whether a lock acquired at `acquired_at` may be extended at `now`.
    #[must_use]
    pub fn allows(&self, acquired_at: Timestamp, now: Timestamp) -> bool {
        now < acquired_at.saturating_add(self.max_hold)
    }

    /// Returns when to extend next after a success whose requests left at `start`, or `None` if renewal has
    /// ended.
    #[must_use]
    pub fn next_extension(&self, acquired_at: Timestamp, start: Timestamp) -> Option<Timestamp> {
        let due = start.saturating_add(self.interval?);
        self.allows(acquired_at, due).then_some(due)
    }

    /// Returns when to try again after an extension failed at `now`, or after nodes denied an acquisition that was won
    /// at `now`, or `None` if renewal has ended: an eighth of the interval later, so that a dozen attempts fit into the
    /// validity that is left.
    #[must_use]
    pub fn next_try(&self, acquired_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        // At least 1 ms: a tiny interval must not turn into a busy loop.
        let delay = (self.interval? / 8).max(Duration::from_millis(1));
        let due = now.saturating_add(delay);
        self.allows(acquired_at, due).then_some(due)
    }
}

/// The error for an interval that cannot keep a lock alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeepAliveError {
    interval: Duration,
    span: Duration,
}

impl fmt::Display for KeepAliveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "extending every {:?} cannot keep a lock that is valid for {:?}: \
             choose more than zero and less than that",
            self.interval, self.span
        )
    }
}

impl Error for KeepAliveError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Ttl};

    fn validity() -> Validity {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        Validity::new(ttl, Drift::new(0, Duration::from_secs(1))).unwrap()
    }

    #[test]
    fn schedule() {
        let second = Duration::from_secs(1);
        let keep_alive = KeepAlive::every(3 * second, 60 * second, validity()).unwrap();
        let start = Timestamp::from_nanos(1_000);
        let at = |after| start.saturating_add(after);
        let next = |now| keep_alive.next_extension(start, now);
        assert_eq!(next(start), Some(at(3 * second)));
        assert_eq!(next(at(56 * second)), Some(at(59 * second)));
        assert_eq!(next(at(57 * second)), None, "due at max_hold");
        let next = |now| keep_alive.next_try(start, now);
        assert_eq!(next(start), Some(at(Duration::from_millis(375))));
        assert_eq!(next(at(60 * second)), None);
        assert!(keep_alive.allows(start, at(59 * second)));
        assert!(!keep_alive.allows(start, at(60 * second)));
    }

    #[test]
    fn the_default_interval_is_a_third() {
        let millis = |ttl| {
            let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
            let validity = Validity::new(ttl, Drift::default()).unwrap();
            KeepAlive::default_interval(validity)
        };
        assert_eq!(millis(9000), Duration::from_secs(3));
        // 3 ms less 2.03 ms of drift.
        assert_eq!(millis(3), Duration::from_micros(485));
    }
}
