use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
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

    fn take(&self) -> Option<LockGuard> {
        // No code panics while it holds the lock.
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.take()
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

/// The layer's own part: dropping it releases the lock, if nobody has taken it.
#[derive(Debug)]
pub struct Holding(HeldLock);

impl Holding {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self(HeldLock {
            hold: guard.hold().clone(),
            guard: Arc::new(Mutex::new(Some(guard))),
        })
    }

    /// Returns the view for the inner service.
    #[must_use]
    pub fn lock(&self) -> &HeldLock {
        &self.0
    }

    /// Returns whether the lock should still be held, and is not.
    pub(crate) fn is_lost(&self) -> bool {
        // No code panics while it holds the lock.
        let guard = self.0.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().is_some_and(|guard| !guard.is_valid())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}
