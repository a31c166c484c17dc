use core::{fmt, num::NonZero, time::Duration};

/// A point in time on the caller's monotonic clock, in whole nanoseconds.
///
/// The core never reads a clock. Every input carries the time at which it happened. The caller chooses
/// where the zero lies. All timestamps that one lease gets must come from the same clock, and that clock
/// must never go backwards. It should keep counting while the host sleeps (`CLOCK_BOOTTIME` on Linux),
/// because a key on a server expires meanwhile.
///
/// All arithmetic saturates: [`Timestamp::MAX`] (584 years) stands for "never".
///
/// ```
/// use core::time::Duration;
/// use redlock_core::Timestamp;
///
/// let now = Timestamp::from_nanos(5);
/// let later = now.saturating_add(Duration::from_millis(3));
/// assert_eq!(later.saturating_duration_since(now), Duration::from_millis(3));
/// assert_eq!(now.saturating_add(Duration::MAX), Timestamp::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// One more than the nanoseconds, so that a deadline that may be missing takes no more room than one that is there.
    NonZero<u64>,
);

impl Timestamp {
    /// The clock's zero.
    pub const ZERO: Self = Self(NonZero::<u64>::MIN);

    /// A time that is never reached.
    pub const MAX: Self = Self(NonZero::<u64>::MAX);

    /// Creates a timestamp from nanoseconds since the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        match NonZero::new(nanos.saturating_add(1)) {
            Some(nanos) => Self(nanos),
            None => Self::ZERO,
        }
    }

    /// Returns the nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the time `after` this one, or [`Timestamp::MAX`] if it cannot be represented.
    #[must_use]
    pub fn saturating_add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(after)))
    }

    /// Returns the time `before` this one, or [`Timestamp::ZERO`] if it cannot be represented.
    #[must_use]
    pub fn saturating_sub(self, before: Duration) -> Self {
        let nanos = self.0.get().saturating_sub(saturating_nanos(before));
        NonZero::new(nanos).map_or(Self::ZERO, Self)
    }

    /// Returns the time from `earlier` to this, or zero if `earlier` is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timestamp").field(&self.as_nanos()).finish()
    }
}

pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
