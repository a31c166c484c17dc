//! What a user does under a lock, and how it ends the hold.

use std::time::Duration;

use redlock_tokio::{Hold, errors::WithLockError};
use tokio::time::{sleep, timeout};

use super::{
    asked::{self, LAST_ATTEMPT},
    cancel::Cancel,
    kept::Kept,
    outliving::Fate,
    panics::INTENDED,
    terms::{Terms, around},
    user::User,
    view::View,
};
use crate::seen::Seen;

/// How many guards a user forgets at the same time.
const MAX_FORGOTTEN: usize = 2;

/// Of how many holds that are over a user has clones.
const MAX_CLONES: usize = 4;

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
        if self.rng.chance(300_000) {
            self.keep_clone(kept.view().clone());
        }
        self.end(kept).await;
    }

    /// Keeps a clone of a hold, and uses the clone when the hold is over.
    fn keep_clone(&mut self, view: View) {
        if self.clones.len() < MAX_CLONES {
            self.clones.push(view);
        }
    }

    async fn end(&mut self, kept: Kept) {
        let how = if self.service.closed_at().is_some() {
            // Few users have a lock when the shutdown begins, and a lock that is forgotten then is to be seen.
            self.rng.pick(&[0, 7, 14])
        } else {
            self.rng.u8(..18)
        };
        match how {
            0..7 => {
                let is_valid = kept.view().hold.is_valid();
                self.environment.note(if is_valid {
                    Seen::Released
                } else {
                    Seen::DroppedTooLate
                });
            }
            7..12 => {
                let cancel = self.cancel_sometimes();
                let outcome = kept.release(cancel).await;
                self.environment.tell((self.id, format!("{outcome:?}")));
            }
            12 => self.panic_with(kept).await,
            16 => self.give(kept).await,
            17 => self.release_later(kept).await,
            // These keep a lock for a long time.
            _ if self.environment.is_calm() => {}
            13 => {
                let cancel = self.cancel_sometimes();
                kept.view().lost(cancel).await;
            }
            14 if self.forgotten.len() < MAX_FORGOTTEN => {
                self.environment.note(Seen::Forgotten);
                if self.rng.bool() {
                    self.forgotten.push(kept);
                } else {
                    self.environment.note(Seen::ForgottenForGood);
                    kept.outlive(Fate::Forgotten);
                }
            }
            15 => {
                self.environment.note(Seen::MovedOut);
                kept.outlive(Fate::MovedOut);
            }
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
        let (key, terms) = (self.unshared_key(), Terms::usual(&environment.scale));
        let Some(kept) = self.lock_key(&key, terms).await else {
            return;
        };
        let (view, time) = (kept.view().clone(), terms.ttl / self.rng.u32(2..=8));
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
        self.environment.note(Seen::Panicked);
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
            (Terms::drowsy(&scale), scale.max_ttl / 2)
        } else {
            (terms, self.environment.work())
        };
        let work = around(&mut self.rng, work);
        let asked = self.ask(std::slice::from_ref(&key), terms);
        let cancel = self.cancel_sometimes();
        let lock = self.service.redlock.lock(key).options(terms.options());
        let mut view = None;
        let with = lock.with(async |hold: &Hold| {
            let has = view.insert(View::new(hold, &asked, true)).clone();
            // The caller hears of the lock only after its release, and others may have had it by then.
            has.check_order(&asked);
            let mark = WorkMark::new(has);
            sleep(work).await;
            mark.end();
        });
        let Some(outcome) = cancel.run(with).await else {
            return match view {
                Some(_) => self.environment.note(Seen::WorkCancelled),
                None => self.note_cancelled(&asked),
            };
        };
        match (outcome, view) {
            (Ok(()), Some(view)) if view.was_valid_at_end() => {
                self.environment.note(Seen::WorkDone);
                self.keep_clone(view);
            }
            (Err(WithLockError::Lost(reason)), Some(view)) if !view.was_valid_at_end() => {
                self.environment.note(Seen::WorkDropped);
                view.check_loss(reason);
                self.keep_clone(view);
            }
            (Err(WithLockError::Lock(error)), None) => {
                self.environment.tell((self.id, asked::kind(&error)));
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
    view: View,
    is_done: bool,
}

impl WorkMark {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            is_done: false,
        }
    }

    pub(super) fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for WorkMark {
    fn drop(&mut self) {
        self.view.note_given_back();
        let mut registry = self.view.environment().registry();
        // Work whose lock is valid is dropped by its caller only.
        if self.is_done || self.view.hold.is_valid() {
            registry.release(self.view.id);
        } else {
            registry.lost(self.view.id);
        }
    }
}
