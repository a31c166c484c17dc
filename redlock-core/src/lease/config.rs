use crate::{KeepAlive, Quorum, RetrySchedule, Validity};

/// The configuration of a [`Lease`](crate::Lease). The constructor of each part validates it.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::*;
///
/// let (millis, second) = (Duration::from_millis(1), Duration::from_secs(1));
/// let validity = Validity::new(Ttl::new(10 * second)?, Drift::default())?;
/// let interval = KeepAlive::default_interval(validity);
/// let config = LeaseConfig::new(
///     Quorum::majority(5)?,
///     validity,
///     RetrySchedule::new(20 * millis..=200 * millis)?,
///     KeepAlive::every(interval, 60 * second, validity)?,
/// );
/// # let _ = Lease::new(config, Nonce::new(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// The nodes, and how many of them decide.
    pub quorum: Quorum,
    /// The ttl of the keys, and the time for which a holder trusts them.
    pub validity: Validity,
    /// When to try again after a failed attempt.
    pub retry: RetrySchedule,
    /// When to extend a held lock, and when to stop.
    pub keep_alive: KeepAlive,
}

impl LeaseConfig {
    /// Puts the parts together.
    #[must_use]
    pub const fn new(
        quorum: Quorum,
        validity: Validity,
        retry: RetrySchedule,
        keep_alive: KeepAlive,
    ) -> Self {
        Self {
            quorum,
            validity,
            retry,
            keep_alive,
        }
    }
}
