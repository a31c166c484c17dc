use std::{
    fmt,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{LockGuard, LossReason};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Span;

use crate::{Locked, OnCancel, OnLost, rules::Rules, telemetry::HoldTimer};

/// Keeps the lock of a call, from the acquisition to the end of the call.
///
/// A call that ends [releases](Self::release) the lock. A call that is cut short drops this guard instead, and
/// [`OnCancel`] says what becomes of the lock.
pub struct CallGuard {
    lock: Locked,
    on_lost: OnLost,
    on_cancel: OnCancel,
    timer: HoldTimer,
    watch: LossWatch,
    /// Counts the call as running. Dropped last: a process that waits for its calls must not exit before their
    /// locks are released.
    running: Option<TaskTrackerToken>,
}

/// How far the guard has observed a loss of its lock.
enum LossWatch {
    NotStarted,
    Waiting(BoxFuture<'static, LossReason>),
    /// The lock was lost, and the loss was reported.
    Lost(LossReason),
    /// The lock was released or taken over before a loss, so the loss is not the layer's.
    Ended,
}

impl CallGuard {
    pub(crate) fn new(guard: LockGuard, rules: &Rules, timer: HoldTimer) -> Self {
        Self {
            lock: Locked::new(guard),
            on_lost: rules.on_lost,
            on_cancel: rules.on_cancel,
            timer,
            watch: LossWatch::NotStarted,
            running: None,
        }
    }

    /// Returns the view of the lock for the inner service.
    pub(crate) fn lock(&self) -> &Locked {
        &self.lock
    }

    /// Releases the lock at the end of its call, unless the inner service has taken it over.
    pub(crate) fn release(mut self) {
        self.on_cancel = OnCancel::Release;
    }

    pub(crate) fn track(&mut self, running: TaskTrackerToken) {
        self.running = Some(running);
    }

    pub(crate) fn span(&self) -> Span {
        self.timer.span()
    }

    /// Returns whether the watch for a loss has started. It costs an allocation, which a call that ends at its
    /// first poll need not pay.
    pub(crate) fn is_watching(&self) -> bool {
        !matches!(self.watch, LossWatch::NotStarted)
    }

    /// Watches for a loss, and reports it at once. Ready if the loss cancels the call.
    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        let reason = ready!(self.poll_lost(cx));
        match self.on_lost {
            OnLost::Cancel => Poll::Ready(reason),
            OnLost::Signal | OnLost::Fail => Poll::Pending,
        }
    }

    /// Watches for a loss, and reports it at once. Ready if the loss cuts the response's body off.
    #[cfg(feature = "http")]
    pub(crate) fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        let reason = ready!(self.poll_lost(cx));
        match self.on_lost {
            OnLost::Cancel | OnLost::Fail => Poll::Ready(reason),
            OnLost::Signal => Poll::Pending,
        }
    }

    /// Returns why a call that has ended must fail all the same.
    pub(crate) fn failure(&self) -> Option<LossReason> {
        (self.on_lost != OnLost::Signal && self.lock.is_lost()).then(|| self.loss_reason())
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        if let LossWatch::NotStarted = self.watch {
            let hold = self.lock.hold().clone();
            self.watch = LossWatch::Waiting(async move { hold.lost().await }.boxed());
        }
        if let LossWatch::Waiting(loss) = &mut self.watch {
            let reason = ready!(loss.poll_unpin(cx));
            self.note_loss(reason);
        }
        match self.watch {
            LossWatch::Lost(reason) => Poll::Ready(reason),
            LossWatch::NotStarted | LossWatch::Waiting(_) | LossWatch::Ended => Poll::Pending,
        }
    }

    /// Reports a loss, unless the inner service has taken the lock over: then the loss is its own.
    fn note_loss(&mut self, reason: LossReason) {
        if self.lock.is_lost() {
            self.timer.note_loss(self.lock.hold(), reason);
            self.watch = LossWatch::Lost(reason);
        } else {
            self.watch = LossWatch::Ended;
        }
    }

    /// Returns why the lock was lost.
    fn loss_reason(&self) -> LossReason {
        // The clock can show the loss before a task has recorded its reason.
        let reason = self.lock.hold().lost().now_or_never();
        reason.unwrap_or(LossReason::Expired)
    }
}

impl fmt::Debug for CallGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallGuard")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let is_unreported = matches!(self.watch, LossWatch::NotStarted | LossWatch::Waiting(_));
        if is_unreported && self.lock.is_lost() {
            self.note_loss(self.loss_reason());
        }
        match (self.lock.take(), self.on_cancel) {
            (Some(guard), OnCancel::Expire) => keep_until_expiry(guard),
            (guard, OnCancel::Release) => drop(guard),
            (None, OnCancel::Expire) => {}
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
