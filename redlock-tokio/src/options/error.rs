use std::time::Duration;

use redlock_core::{KeepAliveError, PermitsError, RetryScheduleError, TtlError, ValidityError};
use thiserror::Error;

/// Why [`LockOptions`](crate::LockOptions) are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The ttl is shorter than a millisecond, or longer than 100 years.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// The ttl is not longer than the drift allowance.
    #[error(transparent)]
    Validity(#[from] ValidityError),
    /// The retry delay is zero, or the shortest delay is longer than the longest.
    #[error(transparent)]
    RetryDelay(#[from] RetryScheduleError),
    /// The ttl is longer than the time for which a restarted node has no vote.
    #[error(
        "the ttl of {ttl:?} is longer than max_ttl, which is {max_ttl:?}: build with \
         `Redlock::builder().max_ttl(Duration::from_millis({}))`, in all processes that use these nodes",
        ttl.as_millis()
    )]
    LongerThanMaxTtl {
        /// The ttl that was requested.
        ttl: Duration,
        /// The longest ttl that a lock may have.
        max_ttl: Duration,
    },
    /// The ttl is shorter than three [windows](crate::RedlockBuilder::confirmation_window), and sentinels or the
    /// nodes of a cluster name the masters.
    #[error(
        "the ttl of {ttl:?} is shorter than three times confirmation_window, which is {window:?}: choose a longer \
         ttl, or build with `Redlock::builder().confirmation_window(Duration::from_millis({}))`, in all processes \
         that use these nodes",
        ttl.as_millis() / 3
    )]
    ShorterThanThreeWindows {
        /// The ttl that was requested.
        ttl: Duration,
        /// How long a confirmation of a master counts.
        window: Duration,
    },
    /// The ttl of a fenced lock is longer than half of the time for which nodes remember its
    /// [counter](redlock_core::FencingToken::COUNTER_LIFETIME).
    #[error(
        "the ttl of a fenced lock may be at most {longest:?}, not {ttl:?}: choose a shorter ttl, which is renewed"
    )]
    TooLongForFence {
        /// The ttl that was requested.
        ttl: Duration,
        /// The longest ttl of a fenced lock.
        longest: Duration,
    },
    /// The renewal interval is zero, or too long to keep the lock.
    #[error(transparent)]
    Renewal(#[from] KeepAliveError),
    /// A reader asks for a fencing token. A token orders holders that follow each other, and readers do not.
    #[error("a reader has no fencing token: only a writer can have one")]
    FencedReader,
    /// A layer, or a request to one, asks for permits and for readers and writers. A lock has either.
    #[error("a lock has either permits or readers and writers, and not both")]
    PermitsAndReaders,
    /// A semaphore has no permits, or too many.
    #[error("the semaphore has {0}")]
    Permits(#[from] PermitsError),
}
