use std::{error::Error, fmt};

use redlock_tokio::{self as redlock, LossReason};

use crate::KeyRejection;

/// Why a call behind a [`LockService`](crate::LockService) failed.
///
/// Whichever it is except for `Inner` and `Lost`: the inner service was not called, and a retry is safe.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockError<E> {
    /// Another call holds the lock, and did so until the waiting time was over.
    Contended(redlock::LockError),
    /// Too many wait already.
    QueueFull(redlock::LockError),
    /// The expected wait exceeds the limit, and
    /// [`refuse_long_waits`](redlock::LockOptions::refuse_long_waits) was set.
    WaitTooLong(redlock::LockError),
    /// No lock is available: too many nodes are down, silent or slow, or the lock
    /// service was shut down.
    Unavailable(redlock::LockError),
    /// The layer's options make no lock.
    Misconfigured(redlock::OptionsError),
    /// There is no usable key.
    Key(KeyRejection),
    /// The lock was lost while the inner service worked, and [`OnLost`](crate::OnLost) says to fail
    /// then. What it had done by then is done.
    Lost(LossReason),
    /// The inner service was called, and failed.
    Inner(E),
}

/// What the layer makes of it, before it calls the inner service. An inner service that locks by hand fails
/// with an error of its own: this one would [claim](LockError::was_called) that it was not called.
impl<E> From<redlock::LockError> for LockError<E> {
    fn from(error: redlock::LockError) -> Self {
        match error {
            redlock::LockError::Contended(_) => Self::Contended(error),
            redlock::LockError::QueueFull { .. } => Self::QueueFull(error),
            redlock::LockError::WaitTooLong { .. } => Self::WaitTooLong(error),
            redlock::LockError::InvalidKey(error) => Self::Key(error.into()),
            redlock::LockError::InvalidOptions(error) => Self::Misconfigured(error),
            _ => Self::Unavailable(error),
        }
    }
}

impl<E> LockError<E> {
    /// Returns whether the inner service was called.
    #[must_use]
    pub fn was_called(&self) -> bool {
        matches!(self, Self::Inner(_) | Self::Lost(_))
    }
}

impl<E: fmt::Display> fmt::Display for LockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contended(error)
            | Self::QueueFull(error)
            | Self::WaitTooLong(error)
            | Self::Unavailable(error) => error.fmt(f),
            Self::Misconfigured(error) => write!(f, "the lock layer is misconfigured: {error}"),
            Self::Key(error) => error.fmt(f),
            Self::Lost(reason) => write!(f, "the lock was lost while the call ran: {reason}"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

// Not `E: Error`, because a boxed error is none, and services behind `timeout` or `buffer` have boxed
// errors. Each variant speaks with the words of what it wraps; for the sources of an inner error,
// match on it.
impl<E: fmt::Debug + fmt::Display> Error for LockError<E> {}
