use core::{error::Error, fmt, time::Duration};

use crate::timestamp::saturating_nanos;

/// How long a key lives on a node unless it is extended: whole milliseconds, at least one.
///
/// A crashed holder blocks other clients for this time, and a live holder must renew within it.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{Ttl, TtlError};
///
/// let ttl = Ttl::new(Duration::from_secs(10))?;
/// assert_eq!(ttl.as_millis(), 10_000);
/// assert!(Ttl::new(Duration::from_micros(10)).is_err());
/// # Ok::<(), TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The longest accepted time to live: 100 years of 365 days.
    ///
    /// Redis adds the time to live to its Unix time in milliseconds, and refuses a sum of more than 63
    /// bits. [`Timestamp`](crate::Timestamp) counts 584 years. This limit lies within both.
    pub const MAX: Self = Self(100 * 365 * 24 * 60 * 60 * 1000);

    /// Creates a time to live, rounded down to whole milliseconds, the unit of `PX`.
    ///
    /// # Errors
    ///
    /// Refuses less than one millisecond, and more than [`Ttl::MAX`].
    pub const fn new(duration: Duration) -> Result<Self, TtlError> {
        match duration.as_millis() {
            0 => Err(TtlError::TOO_SHORT),
            millis if millis <= Self::MAX.0 as u128 => Ok(Self(millis as u64)),
            _ => Err(TtlError::TOO_LONG),
        }
    }

    /// Creates the shortest time to live that lasts for `duration`, within the range.
    pub(crate) fn at_least(duration: Duration) -> Self {
        let millis = saturating_nanos(duration).div_ceil(1_000_000);
        Self(millis.clamp(1, Self::MAX.0))
    }

    /// Returns the time to live in milliseconds, the unit of `PX`.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time to live as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// Why a duration is not a time to live: it is shorter than a millisecond, or longer than [`Ttl::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TtlError(&'static str);

impl TtlError {
    const TOO_SHORT: Self = Self("the ttl is shorter than one millisecond");
    pub(crate) const TOO_LONG: Self = Self("the ttl is longer than 100 years");
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for TtlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_that_lasts_long_enough_is_rounded_up() {
        let millis = |nanos| Ttl::at_least(Duration::from_nanos(nanos)).as_millis();
        assert_eq!([0, 1, 1_000_000, 1_000_001].map(millis), [1, 1, 1, 2]);
        assert_eq!(Ttl::at_least(Duration::MAX), Ttl::MAX);
    }

    #[test]
    fn the_longest_is_a_hundred_years() {
        let days = Ttl::MAX.as_duration().as_secs() / (24 * 60 * 60);
        assert_eq!(days, 36_500);
        assert_eq!(Ttl::MAX.as_millis(), 3_153_600_000_000);
    }
}
