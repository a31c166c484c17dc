//! What a user does under a lock, and how it ends the hold.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use redlock_tokio::{Hold, errors::WithLockError};
use tokio::time::{sleep, timeout};

use super::{
    asked::LAST_ATTEMPT,
    cancel::Cancel,
    kept::Kept,
    outliving::Fate,
    panics::INTENDED,
    terms::{Terms, around},
    user::User,
    view::View,
};
use crate::seen::Seen;

impl User {
    /// Works under a lock, and ends the hold in some way.
    pub(super) async fn work_under(&mut self, kept: Kept) {
        let scale = self.environment.scale;
        let work = self.environment.work();
        for _ in 0..self.rng.u8(1..=3) {
            self.environment.pause(&mut self.rng, work / 2).await;
            let cancel = self.cancel_sometimes();
            match self.rng.u8(..8) {
                0 => kept.view().extend(None, cancel).await,
                1 => {
                    let ttl = scale.max_ttl / self.rng.u32(1..=4);
                    let too_long = scale.max_ttl + Duration::from_millis(1);
                    let ttl = self.rng.pick(&[ttl, ttl, ttl, too_long]);
                    kept.view().extend(Some(ttl), cancel).await;
                }
                // A careless user, which does not look whether its lock is valid.
                2..6 => kept.view().write(),
                6 => {
                    let limit = around(&mut self.rng, work / 2);
                    kept.view().lost(Cancel::Time(limit)).await;
                }
                _ => {}
            }
        }
        kept.view().write();
        self.end(kept).await;
    }

    async fn end(&mut self, kept: Kept) {
        let how = if self.service.closed_at().is_some() {
            // Few users have a lock when the shutdown begins, and a lock that is forgotten then is to be seen.
            self.rng.pick(&[0, 7, 14])
        } else {
            self.rng.u8(..18)
        };
        match how {
            0..7 if kept.view().hold.is_valid() => {}
            0..7 => self.environment.note(Seen::DroppedTooLate),
            7..12 => kept.release(self.cancel_sometimes()).await,
            12 => self.panic_with(kept).await,
            16 => self.give(kept).await,
            17 => self.release_later(kept).await,
            // These keep a lock for a long time.
            _ if self.environment.is_calm() => {}
            13 => {
                let cancel = self.cancel_sometimes();
                kept.view().lost(cancel).await;
            }
            14 if self.rng.bool() => kept.outlive(Fate::Forgotten),
            15 => kept.outlive(Fate::MovedOut),
            _ => {}
        }
    }

    /// Keeps a lock for others to find held until a later release, sometimes for too long.
    async fn release_later(&mut self, kept: Kept) {
        let scale = self.environment.scale;
        let time = if self.environment.is_calm() {
            self.environment.work() * 2
        } else {
            scale.max_ttl * self.rng.pick(&[2, 5, 9, 10]) / 10
        };
        let cancel = self.cancel_sometimes();
        kept.release_later(time, cancel).await;
    }

    /// Releases a lock that nobody else wants later, and locks the key again. In quiet times that is possible soon
    /// after the time, and never before.
    pub(super) async fn release_later_alone(&mut self) {
        let environment = self.environment.clone();
        let is_quiet = environment.is_quiet(environment.now());
        let (key, terms) = (self.unshared_key(), Terms::usual(&environment));
        let Some(kept) = self.lock_key(&key, terms).await else {
            return;
        };
        let (view, time) = (Arc::clone(kept.view()), terms.ttl / self.rng.u32(2..=8));
        kept.release_later(time, Cancel::Never).await;
        let limit = view.until_release(time) + LAST_ATTEMPT;
        let again = self.lock_key(&key, terms.wait(terms.ttl));
        let in_time = timeout(limit, again).await;
        match in_time {
            Ok(Some(_)) => environment.note(Seen::LockedAfterLaterRelease),
            Err(_) if is_quiet => {
                environment.fail(format_args!("{key} is not free after {limit:?}"));
            }
            _ => {}
        }
    }

    async fn panic_with(&self, kept: Kept) {
        let task = tokio::spawn(async move {
            let _kept = kept;
            std::panic::panic_any(INTENDED);
        });
        let outcome: Result<(), _> = task.await;
        assert!(outcome.is_err_and(|it| it.is_panic()));
    }

    /// Lets the library run the work under a lock, and drop it at the loss.
    pub(super) async fn work_with_lock(&mut self, terms: Terms) {
        let key = self.key();
        let scale = self.environment.scale;
        // Some work takes longer than its lock lasts.
        let is_long = !self.environment.is_calm() && self.rng.chance(300_000);
        let (terms, work) = if is_long {
            (Terms::drowsy(&self.environment), scale.max_ttl / 2)
        } else {
            (terms, self.environment.work())
        };
        let work = around(&mut self.rng, work);
        let asked = self.ask(std::slice::from_ref(&key), terms);
        let cancel = self.cancel_sometimes();
        let lock = self.service.redlock.lock(key).options(terms.options());
        let mut view = None;
        let with = lock.with(async |hold: &Hold| {
            let mark = WorkMark::new(View::new(hold, &asked, true));
            // The caller hears of the lock only after its release, and others may have had it by then.
            mark.view.check_order();
            view = Some(Arc::clone(&mark.view));
            sleep(work).await;
            mark.end();
        });
        let Some(outcome) = cancel.run(with).await else {
            return match view {
                Some(_) => self.environment.note(Seen::WorkCancelled),
                None => self.note_cancelled(),
            };
        };
        match (outcome, view) {
            (Ok(()), Some(view)) if view.was_valid.load(Relaxed) => {
                self.environment.note(Seen::WorkDone);
            }
            (Err(WithLockError::Lost(reason)), Some(view)) if !view.was_valid.load(Relaxed) => {
                self.environment.note(Seen::WorkDropped);
                view.check_loss(reason);
            }
            (Err(WithLockError::Lock(error)), None) => {
                asked.judge(&error);
            }
            (outcome, _) => {
                self.environment
                    .fail(format_args!("work under a lock ended as {outcome:?}"));
            }
        }
    }
}

/// Notes when the work under a lock ends or is dropped.
pub(super) struct WorkMark {
    view: Arc<View>,
    is_done: bool,
}

impl WorkMark {
    pub(super) fn new(view: View) -> Self {
        Self {
            view: Arc::new(view),
            is_done: false,
        }
    }

    pub(super) fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for WorkMark {
    fn drop(&mut self) {
        let view = &self.view;
        view.check_longest();
        let is_valid = view.hold.is_valid();
        view.was_valid.store(is_valid, Relaxed);
        let mut registry = view.environment().registry();
        // Work whose lock is valid is dropped by its caller only.
        if self.is_done || is_valid {
            registry.release(view.id);
        } else {
            registry.lost(view.id);
        }
    }
}
