use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{LockGuard, LossReason};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Span;

use crate::{HeldLock, OnCancel, OnLost, telemetry::Held};

/// The layer's own part of a lock. It goes with the call to its end, and then is
/// [released](Self::release); dropping it means that the call did not come to its end, see
/// [`OnCancel`].
#[derive(Debug)]
pub struct Holding {
    lock: HeldLock,
    on_lost: OnLost,
    on_cancel: OnCancel,
    held: Held,
    /// What counts the call as running. Dropped last: a process that waits for its calls must not end
    /// before their locks are let go.
    running: Option<TaskTrackerToken>,
}

impl Holding {
    pub(crate) fn new(guard: LockGuard, on_lost: OnLost, on_cancel: OnCancel, held: Held) -> Self {
        Self {
            lock: HeldLock::new(guard),
            on_lost,
            on_cancel,
            held,
            running: None,
        }
    }

    /// Returns the view for the inner service.
    #[must_use]
    pub fn lock(&self) -> &HeldLock {
        &self.lock
    }

    /// Releases the lock, if nobody has taken it: the call has come to its end.
    pub fn release(mut self) {
        self.on_cancel = OnCancel::Release;
    }

    pub(crate) fn tracked_by(&mut self, running: TaskTrackerToken) {
        self.running = Some(running);
    }

    pub(crate) fn span(&self) -> Span {
        self.held.span()
    }

    /// Waits for the loss that ends the call where it stands, if one does by the layer's rules.
    pub(crate) fn cancelled(&self) -> Option<BoxFuture<'static, LossReason>> {
        (self.on_lost == OnLost::Cancel).then(|| self.lost())
    }

    /// Waits for the loss that cuts a body off, if one does by the layer's rules.
    #[cfg(feature = "http")]
    pub(crate) fn cut_off(&self) -> Option<BoxFuture<'static, LossReason>> {
        (self.on_lost != OnLost::Signal).then(|| self.lost())
    }

    /// Returns why the call must not look like a success.
    pub(crate) fn failure(&self) -> Option<LossReason> {
        (self.on_lost != OnLost::Signal && self.lock.is_lost()).then(|| self.reason())
    }

    fn lost(&self) -> BoxFuture<'static, LossReason> {
        let hold = self.lock.hold().clone();
        async move { hold.lost().await }.boxed()
    }

    /// Why the lock is lost that is.
    fn reason(&self) -> LossReason {
        // The clock may say so before anybody has come round to say why.
        let reason = self.lock.hold().lost().now_or_never();
        reason.unwrap_or(LossReason::Expired)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.lock.is_lost() {
            self.held.lost(self.reason());
        }
        match (self.lock.take(), self.on_cancel) {
            (Some(guard), OnCancel::Expire) => wait_out(guard),
            (guard, OnCancel::Release) => drop(guard),
            (None, OnCancel::Expire) => {}
        }
    }
}

/// Keeps a lock until it would have expired.
fn wait_out(guard: LockGuard) {
    // Outside of a runtime nobody can wait, and the guard is dropped.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            sleep(guard.remaining()).await;
            drop(guard);
        });
    }
}
