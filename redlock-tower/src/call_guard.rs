use redlock_tokio::{LockGuard, LossReason};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{Locked, OnCancel, OnLost};

/// Keeps the lock of a call to the end of the call, or to the end of the response's body.
///
/// A call or a body that ends [releases](Self::release) the lock. One that is cut short drops this guard instead, and
/// [`OnCancel`] says what becomes of the lock.
pub(crate) struct CallGuard {
    lock: Locked,
    /// Whether this is the guard of the body. Then that of the call lets the lock go.
    is_of_body: bool,
    /// Whether what runs under the lock has come to its end.
    has_ended: bool,
    /// Counts the call as running. Dropped last: a process that waits for its calls must not exit before their
    /// locks are released.
    _running: Option<TaskTrackerToken>,
}

impl CallGuard {
    /// Takes the lock from the guard of the call.
    #[cfg(feature = "http")]
    pub(crate) fn of_body(lock: Locked) -> Self {
        lock.keep_for_body();
        Self::new(lock, true)
    }

    pub(crate) fn new(lock: Locked, is_of_body: bool) -> Self {
        Self {
            is_of_body,
            has_ended: false,
            _running: lock.rules().tasks.as_ref().map(TaskTracker::token),
            lock,
        }
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.lock.rules().on_lost
    }

    /// Releases the lock at the end of its call, unless the inner service has taken it over.
    pub(crate) fn release(mut self) {
        self.has_ended = true;
    }

    /// Waits until the layer has lost the lock.
    pub(crate) async fn lost(&self) -> LossReason {
        self.lock.lost_by_layer().await
    }

    /// Returns why a call that has ended must fail all the same.
    pub(crate) fn failure(&self) -> Option<LossReason> {
        (self.on_lost() != OnLost::Signal && self.lock.is_lost()).then(|| self.lock.loss_reason())
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.lock.is_kept_for_body() != self.is_of_body {
            return;
        }
        let rules = self.lock.rules();
        if self.lock.is_lost() {
            tracing::warn!(
                target: "redlock",
                label = rules.label,
                token = %self.lock.token(),
                reason = %self.lock.loss_reason(),
                "a call lost its lock while it ran"
            );
        }
        match self.lock.take() {
            Some(guard) if !self.has_ended && rules.on_cancel == OnCancel::Expire => {
                keep_until_expiry(guard);
            }
            guard => drop(guard),
        }
    }
}

/// Keeps a lock until it would have expired. Outside of a runtime no task can wait, so the lock is released.
fn keep_until_expiry(guard: LockGuard) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            sleep(guard.remaining()).await;
            drop(guard);
        });
    }
}
