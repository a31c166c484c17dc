//! The locks of this crate, in one place, so that a model checker's can replace them.

pub(crate) use std::sync::MutexGuard;

/// A mutex that is locked for a few instructions at a time, and never across an await.
///
/// It ignores poison. The code that runs under it does not panic in the middle of a change, so a panic leaves
/// nothing half done.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
