use std::{
    fmt,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{LockGuard, LossReason};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Span;

use crate::{HeldLock, OnCancel, OnLost, telemetry::Held};

/// The layer's own part of a lock. It goes with the call to its end, and then is
/// [released](Self::release); dropping it means that the call did not come to its end, see
/// [`OnCancel`].
pub struct Holding {
    lock: HeldLock,
    on_lost: OnLost,
    on_cancel: OnCancel,
    held: Held,
    watch: Watch,
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
            watch: Watch::None,
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

    /// Returns whether somebody watches for a loss. That costs an allocation, and is not worth it for work
    /// that is done at once.
    pub(crate) fn is_watched(&self) -> bool {
        !matches!(self.watch, Watch::None)
    }

    /// Watches for a loss, which is told as soon as it is seen. Ready if the call ends with it where it
    /// stands, by the layer's rules.
    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        let reason = ready!(self.poll_lost(cx));
        match self.on_lost {
            OnLost::Cancel => Poll::Ready(reason),
            OnLost::Signal | OnLost::Fail => Poll::Pending,
        }
    }

    /// Does so for a body. Ready if the loss cuts it off.
    #[cfg(feature = "http")]
    pub(crate) fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        let reason = ready!(self.poll_lost(cx));
        match self.on_lost {
            OnLost::Cancel | OnLost::Fail => Poll::Ready(reason),
            OnLost::Signal => Poll::Pending,
        }
    }

    /// Returns why the call must not look like a success.
    pub(crate) fn failure(&self) -> Option<LossReason> {
        (self.on_lost != OnLost::Signal && self.lock.is_lost()).then(|| self.reason())
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        if let Watch::None = self.watch {
            let hold = self.lock.hold().clone();
            self.watch = Watch::For(async move { hold.lost().await }.boxed());
        }
        if let Watch::For(loss) = &mut self.watch {
            let reason = ready!(loss.poll_unpin(cx));
            self.see(reason);
        }
        match self.watch {
            Watch::Seen(reason) => Poll::Ready(reason),
            Watch::None | Watch::For(_) | Watch::Over => Poll::Pending,
        }
    }

    /// Tells of a loss, unless somebody has taken the lock over, whose it is then.
    fn see(&mut self, reason: LossReason) {
        if self.lock.is_lost() {
            self.held.lost(reason);
            self.watch = Watch::Seen(reason);
        } else {
            self.watch = Watch::Over;
        }
    }

    /// Why the lock is lost that is.
    fn reason(&self) -> LossReason {
        // The clock may say so before anybody has come round to say why.
        let reason = self.lock.hold().lost().now_or_never();
        reason.unwrap_or(LossReason::Expired)
    }
}

/// The watch for a loss.
enum Watch {
    None,
    For(BoxFuture<'static, LossReason>),
    /// It was lost, and that has been told.
    Seen(LossReason),
    /// There is nothing to lose any more.
    Over,
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if matches!(self.watch, Watch::None | Watch::For(_)) && self.lock.is_lost() {
            self.see(self.reason());
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
