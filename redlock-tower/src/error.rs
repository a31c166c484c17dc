use std::{error::Error, fmt, time::Duration};

use redlock_tokio::{self as redlock, LossReason, WaiterLimit};

use crate::KeyRejection;

/// Why a call behind a [`LockService`](crate::LockService) failed.
///
/// With every variant except `Inner` and `Lost`, the inner service was not called, and a retry is safe.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The lock stayed taken until the waiting time was over.
    Contended(Refusal),
    /// Too many calls wait already.
    QueueFull(Refusal),
    /// No lock is available: too many nodes are down, silent, slow or overloaded, or the lock service was shut down.
    Unavailable(redlock::LockError),
    /// The layer has options that are invalid.
    Misconfigured(redlock::errors::OptionsError),
    /// The call has no usable key.
    Key(KeyRejection),
    /// The lock was lost while the inner service ran, and [`OnLost`](crate::OnLost) makes the call fail then.
    /// The inner service may have done some or all of its work.
    Lost(LossReason),
    /// The inner service failed.
    Inner(E),
}

/// Why a call was refused, and how long the next call would wait for the same lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Why the lock was not acquired.
    pub error: redlock::LockError,
    /// How long one more waiter would expect to wait, see
    /// [`Redlock::expected_wait`](redlock::Redlock::expected_wait). Of several keys the longest. `None` if
    /// that is not known.
    pub expected_wait: Option<Duration>,
}

impl Refusal {
    /// Returns whether the limit on all waiters was reached, and not only that of the key.
    #[must_use]
    pub fn is_total(&self) -> bool {
        let limit = WaiterLimit::Total;
        matches!(self.error, redlock::LockError::QueueFull { limited_by, .. } if limited_by == limit)
    }

    /// Returns whether the call wanted a permit of a [semaphore](redlock::Redlock::semaphore), and all were taken.
    #[must_use]
    pub fn has_permits(&self) -> bool {
        matches!(&self.error, redlock::LockError::Contended(attempts) if attempts.permits.is_some())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Sorts an error of the lock service by what a caller can do about it.
///
/// The layer does so before it calls the inner service. An inner service that takes locks of its own should not
/// return them as this error, because it [claims](CallError::was_called) that the service was not called.
impl<E> From<redlock::LockError> for CallError<E> {
    fn from(error: redlock::LockError) -> Self {
        let refusal = |error| Refusal {
            error,
            expected_wait: None,
        };
        match error {
            redlock::LockError::Contended(_) => Self::Contended(refusal(error)),
            redlock::LockError::QueueFull { .. } => Self::QueueFull(refusal(error)),
            redlock::LockError::InvalidKey(error) => Self::Key(error.into()),
            redlock::LockError::InvalidOptions(error) => Self::Misconfigured(error),
            _ => Self::Unavailable(error),
        }
    }
}

impl<E> CallError<E> {
    /// Returns whether the inner service was called.
    #[must_use]
    pub fn was_called(&self) -> bool {
        matches!(self, Self::Inner(_) | Self::Lost(_))
    }

    /// Adds the expected wait to the errors that have one.
    pub(crate) fn expecting(mut self, wait: impl FnOnce() -> Option<Duration>) -> Self {
        if let Self::Contended(it) | Self::QueueFull(it) = &mut self {
            it.expected_wait = wait();
        }
        self
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contended(refusal) | Self::QueueFull(refusal) => refusal.fmt(f),
            Self::Unavailable(error) => error.fmt(f),
            Self::Misconfigured(error) => write!(f, "the lock layer is misconfigured: {error}"),
            Self::Key(error) => error.fmt(f),
            Self::Lost(reason) => write!(f, "the lock was lost while the call ran: {reason}"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// `source` is the error of the lock, for code that looks for it in a chain. `Display` shows it, too. `E` need not be an `Error`:
// boxed errors are not, and services behind `timeout` or `buffer` fail with boxed errors.
impl<E: fmt::Debug + fmt::Display> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Contended(refusal) | Self::QueueFull(refusal) => Some(&refusal.error),
            Self::Unavailable(error) => Some(error),
            Self::Misconfigured(error) => Some(error),
            Self::Key(error) => Some(error),
            Self::Lost(_) | Self::Inner(_) => None,
        }
    }
}
