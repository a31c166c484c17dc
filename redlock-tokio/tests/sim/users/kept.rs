//! A guard in the hands of a user.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use redlock_tokio::{
    LockGuard, LockTicket,
    errors::{DowngradeError, ReleaseAfterError, TicketError},
};
use tokio::task::AbortHandle;

use super::{asked::Asked, cancel::Cancel, outliving::Fate, view::View};
use crate::{host::Host, seen::Seen};

/// A guard whose end is noted before it is dropped.
pub(crate) struct Kept {
    guard: Option<LockGuard>,
    watcher: Option<AbortHandle>,
    /// Dropped after the guard: until then, its request keeps others from the key.
    view: Arc<View>,
}

impl Kept {
    /// Notes that a user has a lock. A task watches for its loss if `is_watched`.
    pub(crate) fn new(guard: LockGuard, asked: &Arc<Asked>, is_watched: bool) -> Self {
        let mut view = View::new(guard.hold(), asked, is_watched);
        view.check_grant(&guard.acquisition());
        let view = Arc::new(view);
        let watcher = is_watched.then(|| tokio::spawn(Arc::clone(&view).watch()).abort_handle());
        Self {
            guard: Some(guard),
            watcher,
            view,
        }
    }

    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Turns the lock of a writer into one of a reader.
    pub(crate) async fn downgrade(&self, cancel: Cancel) {
        let Some(guard) = &self.guard else { return };
        let environment = self.view.environment();
        // Others may share it from the moment at which this is asked.
        self.view.share();
        match cancel.run(guard.downgrade()).await {
            None => environment.note(Seen::DowngradeCancelled),
            Some(Ok(())) => environment.note(Seen::Downgraded),
            Some(Err(DowngradeError::Extend(error))) => {
                environment.note(Seen::DowngradeFailed);
                self.view.check_extension(None, &error);
            }
            Some(Err(error)) => environment.fail(format_args!("no downgrade: {error}")),
        }
    }

    /// Releases the lock, and waits for that.
    pub(crate) async fn release(mut self, cancel: Cancel) {
        let Some(guard) = self.take() else { return };
        let was_valid = guard.is_valid();
        let report = cancel.run(guard.release()).await;
        let outcome = report.map(|it| it.outcome);
        self.view.check_release(outcome, was_valid);
    }

    /// Ends the hold. The lock is released when this time has passed since it was taken.
    pub(crate) async fn release_later(mut self, time: Duration, cancel: Cancel) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        let environment = self.view.environment().clone();
        environment.registry().note_leaving(self.view.id, true);
        let asked_at = environment.now();
        match cancel.run(guard.release_after(time)).await {
            Some(Ok(())) => self.view.note_later_release(time, asked_at),
            Some(Err(error)) => {
                environment.note(Seen::NotReleasedLater);
                environment.registry().note_leaving(self.view.id, false);
                match &error {
                    ReleaseAfterError::Reader { guard } if guard.is_reader() => {}
                    ReleaseAfterError::NotExtended { cause, .. } => {
                        // The drift allowance comes on top.
                        let ttl = time + Duration::from_millis(1);
                        self.view.check_extension(Some(ttl), cause);
                    }
                    _ => environment.fail(format_args!("not kept: {error}")),
                }
                self.guard = Some(error.into_guard());
            }
            None => {
                environment.note(Seen::LaterReleaseCancelled);
                environment.registry().release(self.view.id);
            }
        }
        self.stop_watching();
    }

    /// Gives the lock away.
    pub(crate) fn give(mut self) -> Result<LockTicket, TicketError> {
        let guard = self.take().expect("the guard is there until the end");
        guard.into_ticket()
    }

    /// Moves the guard to a place that outlives the runtime.
    pub(crate) fn outlive(self, fate: Fate) {
        let environment = self.view.environment().clone();
        let mut outliving = environment.records.outliving.lock();
        outliving.push(fate, self);
    }

    /// Returns what the guard says after the end of its runtime that must not be.
    pub(crate) fn contradiction_after_runtime(&self) -> Option<String> {
        let hold = &self.view.hold;
        let loss = hold.lost().now_or_never();
        let outlives = hold.is_valid() || loss.is_none();
        let process = self.view.environment().host.process;
        outlives.then(|| format!("a lock of process {process} outlives its runtime: {loss:?}"))
    }

    /// Returns whether it is a guard of this process.
    pub(crate) fn is_of(&self, host: &Arc<Host>) -> bool {
        Arc::ptr_eq(&self.view.environment().host, host)
    }

    fn take(&mut self) -> Option<LockGuard> {
        let guard = self.guard.take()?;
        self.view.check_longest();
        let environment = self.view.environment();
        environment.registry().release(self.view.id);
        self.stop_watching();
        Some(guard)
    }

    fn stop_watching(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.take());
    }
}
