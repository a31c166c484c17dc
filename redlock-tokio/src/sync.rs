//! The mutexes, atomics and notifications that the threads of a process share, in one place.
//!
//! They are those of std and tokio. The tests in `threads` are compiled with `--cfg redlock_shuttle`, and replace them
//! by those of shuttle. Shuttle runs one thread at a time, and decides before each use which thread goes on.

#[cfg(all(test, redlock_shuttle))]
mod explored;

#[cfg(all(test, redlock_shuttle))]
use shuttle::sync as primitives;
#[cfg(not(all(test, redlock_shuttle)))]
use std::sync as primitives;

#[cfg(not(all(test, redlock_shuttle)))]
pub(crate) use tokio::sync::Notify;

#[cfg(all(test, redlock_shuttle))]
pub(crate) use self::explored::Notify;
pub(crate) use self::primitives::{MutexGuard, atomic};

/// A mutex that is locked for a few instructions at a time, and never across an await.
///
/// It ignores poison. The code that runs under it does not panic in the middle of a change, so a panic leaves
/// nothing half done.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(primitives::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
