use core::{error::Error, fmt, time::Duration};

use crate::{Timestamp, Ttl, TtlError};

/// The allowance for clocks that differ in rate while a lock is held: a part of the ttl plus a fixed time.
///
/// The default is `ttl/100 + 2 ms`, as in the algorithm's reference implementation: one part in
/// a hundred for the clocks' rates, two milliseconds for the precision of expiry on the servers
/// and for short ttls.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, Ttl, TtlError};
///
/// let ttl = Ttl::new(Duration::from_secs(10))?;
/// assert_eq!(Drift::default().allowance(ttl), Duration::from_millis(102));
/// # Ok::<(), TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drift {
    per_mille: u16,
    fixed: Duration,
}

impl Drift {
    /// Creates an allowance of `per_mille` thousandths of the ttl, plus a `fixed` time.
    #[must_use]
    pub const fn new(per_mille: u16, fixed: Duration) -> Self {
        Self { per_mille, fixed }
    }

    /// Returns the allowance for a key that lives for `ttl`.
    #[must_use]
    pub fn allowance(self, ttl: Ttl) -> Duration {
        // A thousandth of a millisecond is a microsecond. The longest ttl has 42 bits.
        let part = Duration::from_micros(ttl.as_millis() * u64::from(self.per_mille));
        self.fixed.saturating_add(part)
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::new(10, Duration::from_millis(2))
    }
}

/// The time for which a holder may trust its keys: the ttl less the drift allowance, from the moment
/// *before* the first request left.
///
/// The source says that validity is the initial ttl, minus the time that passed while acquiring, minus
/// some milliseconds for drift (Redlock steps 3 and 4). Here validity is a point in time,
/// `start + ttl - drift`, so the time between `start` and the verdict needs no account of its own.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Drift, Timestamp, Ttl, Validity};
///
/// let validity = Validity::new(Ttl::new(Duration::from_secs(10))?, Drift::default())?;
/// let start = Timestamp::ZERO; // read before the first request leaves
/// let valid_until = start.saturating_add(Duration::from_millis(9898));
/// assert_eq!(validity.until(start), valid_until);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Validity {
    ttl: Ttl,
    drift: Drift,
}

impl Validity {
    /// Creates the validity of keys that live for `ttl`.
    ///
    /// # Errors
    ///
    /// Refuses a ttl that is not longer than its drift allowance: such a lock could never be held.
    pub fn new(ttl: Ttl, drift: Drift) -> Result<Self, ValidityError> {
        let allowance = drift.allowance(ttl);
        if allowance < ttl.as_duration() {
            Ok(Self { ttl, drift })
        } else {
            let drift = allowance;
            Err(ValidityError { ttl, drift })
        }
    }

    /// Returns the validity of keys that live for another ttl, with the same drift.
    ///
    /// # Errors
    ///
    /// Refuses a ttl that is not longer than its drift allowance.
    pub fn with_ttl(self, ttl: Ttl) -> Result<Self, ValidityError> {
        Self::new(ttl, self.drift)
    }

    /// Returns the validity of the shortest keys that are valid for at least `span`, with the same drift.
    ///
    /// # Errors
    ///
    /// Refuses a span for which the ttl would have to be longer than [`Ttl::MAX`].
    pub fn lasting(self, span: Duration) -> Result<Self, TtlError> {
        // The drift allowance takes its fixed part, and its part of each millisecond.
        let kept = 1000_u128.checked_sub(u128::from(self.drift.per_mille));
        let kept = kept.filter(|kept| *kept > 0).ok_or(TtlError::TOO_LONG)?;
        let needed = span.saturating_add(self.drift.fixed).as_nanos() * 1000;
        let millis = needed.div_ceil(kept * 1_000_000);
        let millis = u64::try_from(millis).map_err(|_| TtlError::TOO_LONG)?;
        let ttl = Ttl::new(Duration::from_millis(millis.max(1)))?;
        Ok(self.for_ttl(ttl))
    }

    /// Returns the same, with no time at all if the drift allowance uses up the ttl.
    pub(crate) const fn for_ttl(self, ttl: Ttl) -> Self {
        Self { ttl, ..self }
    }

    /// Returns the time to live of the keys.
    #[must_use]
    pub const fn ttl(self) -> Ttl {
        self.ttl
    }

    /// Returns how long a lock is valid if acquiring it takes no time: `ttl - drift`.
    #[must_use]
    pub fn span(self) -> Duration {
        let drift = self.drift.allowance(self.ttl);
        self.ttl.as_duration().saturating_sub(drift)
    }

    /// Returns the end of validity for requests that started to leave at `start`.
    #[must_use]
    pub fn until(self, start: Timestamp) -> Timestamp {
        start.saturating_add(self.span())
    }
}

/// The error for a ttl that is not longer than its own drift allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValidityError {
    ttl: Ttl,
    drift: Duration,
}

impl fmt::Display for ValidityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the ttl of {:?} is used up by the drift allowance of {:?}: choose a longer ttl",
            self.ttl.as_duration(),
            self.drift
        )
    }
}

impl Error for ValidityError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    #[test]
    fn default_drift_is_a_hundredth_and_two_milliseconds() {
        let drift = Drift::default();
        assert_eq!(drift.allowance(ttl(10_000)), Duration::from_millis(102));
        assert_eq!(drift.allowance(ttl(1)), Duration::from_micros(2010));
    }

    #[test]
    fn the_shortest_keys_that_last_are_found() {
        let drifts = [
            Drift::default(),
            Drift::new(333, Duration::ZERO),
            Drift::new(999, Duration::from_micros(1)),
        ];
        for drift in drifts {
            let any = Validity::new(ttl(10_000), drift).unwrap();
            for micros in [1, 999, 1000, 9_898_000, 9_898_001] {
                let span = Duration::from_micros(micros);
                let shortest = any.lasting(span).unwrap();
                assert!(shortest.span() >= span, "{drift:?} {span:?}");
                let millis = shortest.ttl().as_millis();
                let is_shortest = millis == 1 || any.for_ttl(ttl(millis - 1)).span() < span;
                assert!(is_shortest, "{drift:?} {span:?} {millis}");
            }
        }
        let all = Validity::new(ttl(1), Drift::new(0, Duration::ZERO)).unwrap();
        assert_eq!(all.lasting(Duration::MAX), Err(TtlError::TOO_LONG));
        let none = Validity {
            drift: Drift::new(1000, Duration::ZERO),
            ..all
        };
        assert_eq!(none.lasting(Duration::ZERO), Err(TtlError::TOO_LONG));
    }
}
