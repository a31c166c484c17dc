use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redlock_tokio::{Hold, LockGuard, ReleaseReport};

/// The lock that a call runs under, as the inner service sees it.
///
/// It is a view, which can be cloned and handed on; the layer releases the lock when the call is over.
/// Whoever has one may release it before, or take it over.
#[derive(Clone)]
pub struct HeldLock {
    hold: Hold,
    guard: Arc<Mutex<Option<LockGuard>>>,
}

impl HeldLock {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self {
            hold: guard.hold().clone(),
            guard: Arc::new(Mutex::new(Some(guard))),
        }
    }

    /// Returns the view, without the right to release.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Takes the lock over: the layer does not release it any more, and it is held for as long as the
    /// guard lives (and for [`max_hold`](redlock_tokio::LockOptions::max_hold) at most). For work that
    /// goes on after the response, such as a stream or a WebSocket.
    ///
    /// `None` if somebody has taken or released it, or the call is over.
    #[must_use = "the lock is released as soon as the guard is dropped"]
    pub fn into_owned(self) -> Option<LockGuard> {
        self.take()
    }

    /// Releases the lock before the call is over, and waits until a majority of nodes has confirmed it;
    /// see [`LockGuard::release`]. `None` if somebody has taken or released it.
    pub async fn release_early(&self) -> Option<ReleaseReport> {
        match self.take() {
            Some(guard) => Some(guard.release().await),
            None => None,
        }
    }

    /// Returns whether the lock should still be held by the layer, and is not.
    pub(crate) fn is_lost(&self) -> bool {
        self.guard().as_ref().is_some_and(|it| !it.is_valid())
    }

    pub(crate) fn take(&self) -> Option<LockGuard> {
        self.guard().take()
    }

    fn guard(&self) -> MutexGuard<'_, Option<LockGuard>> {
        // No code panics while it holds the lock.
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for HeldLock {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
