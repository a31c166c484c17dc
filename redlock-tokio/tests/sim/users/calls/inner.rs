//! The service behind a lock layer.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use redlock_tokio::LockGuard;
use redlock_tower::{Locked, OnLost};
use tokio::time::sleep;

use super::{
    progress::{End, LockAtEnd, Progress},
    rules::Rules,
};
use crate::{
    judge::HoldId,
    seen::Seen,
    users::{asked::Asked, environment::Environment, panics::INTENDED, terms::Terms, view::View},
};

/// A call.
pub(super) struct Job {
    pub(super) environment: Environment,
    pub(super) keys: Vec<String>,
    pub(super) terms: Terms,
    pub(super) work: Duration,
    pub(super) ending: Ending,
    pub(super) rules: Rules,
    pub(super) lock: Option<Locked>,
    pub(super) progress: Arc<Progress>,
    /// Kept for as long as the inner service has the lock.
    pub(super) asked: Arc<Asked>,
}

/// How a call ends in the inner service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Responds,
    Fails,
    Panics,
    ReleasesEarly,
    TakesOver,
}

/// The inner service fails on purpose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fails;

/// Notes when the inner service ends a call, or the call is dropped.
struct Mark {
    environment: Environment,
    rules: Rules,
    progress: Arc<Progress>,
    /// The hold that the registry does not know to be over.
    hold: Option<HoldId>,
    /// The layer drops the call when the lock is lost.
    is_watched: bool,
    /// The layer has the lock, if there is one.
    is_lock_of_layer: bool,
    ending: Option<Ending>,
    _asked: Arc<Asked>,
}

impl fmt::Display for Fails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call fails on purpose")
    }
}

/// The inner service.
pub(super) async fn serve(mut job: Job) -> Result<(), Fails> {
    let lock = job.lock.take();
    let mut mark = Mark::new(&job, lock.as_ref());
    let mut owned: Option<LockGuard> = None;
    sleep(job.work).await;
    match (job.ending, lock) {
        (Ending::ReleasesEarly, Some(lock)) => {
            job.environment.note(Seen::CallReleasedEarly);
            mark.give_up();
            mark.is_lock_of_layer = false;
            lock.release_early().await;
        }
        (Ending::TakesOver, Some(lock)) => {
            owned = lock.into_owned();
            mark.is_lock_of_layer = false;
            job.environment.note(Seen::CallTookOver);
            if owned.is_none() {
                job.environment.fail("a call that runs has no guard");
            }
            sleep(job.work).await;
        }
        (Ending::Panics, _) => {
            mark.ending = Some(Ending::Panics);
            std::panic::panic_any(INTENDED)
        }
        _ => {}
    }
    mark.ending = Some(job.ending);
    drop(mark);
    drop(owned);
    if job.ending == Ending::Fails {
        Err(Fails)
    } else {
        Ok(())
    }
}

impl Mark {
    fn new(job: &Job, lock: Option<&Locked>) -> Self {
        let environment = job.environment.clone();
        job.progress.has_begun.store(true, Relaxed);
        job.progress.running.fetch_add(1, Relaxed);
        job.progress.leave_queue();
        // A lock that the inner service takes over is its own, and the layer does not watch it any more.
        let is_cancelled = job.rules.on_lost == OnLost::Cancel;
        let is_watched = is_cancelled && job.ending != Ending::TakesOver;
        let view = lock.map(|lock| View::new(lock.hold(), &job.asked, is_watched));
        let hold = view.as_ref().map(|it| it.id);
        environment.tell(("call begins", hold));
        match view {
            Some(view) => {
                // A call begins once.
                let _ = job.progress.view.set(view);
            }
            None => {
                environment.note(Seen::CallWithoutLock);
                let is_quiet = environment.records.quiet.since(job.asked.open.since());
                if !job.rules.fails_open || is_quiet {
                    environment.fail("a call runs without a lock");
                }
            }
        }
        Self {
            environment,
            rules: job.rules,
            progress: Arc::clone(&job.progress),
            hold,
            is_watched,
            is_lock_of_layer: true,
            ending: None,
            _asked: Arc::clone(&job.asked),
        }
    }

    /// Notes that the call no longer relies on its lock.
    fn give_up(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.environment.records.registry.give_up(hold);
        }
    }

    /// Returns what the lock is like now.
    fn lock(&self) -> LockAtEnd {
        match self.progress.view.get() {
            None => LockAtEnd::Missing,
            Some(_) if !self.is_lock_of_layer => LockAtEnd::InOtherHands,
            Some(view) if view.hold.is_valid() => LockAtEnd::Valid,
            Some(_) => LockAtEnd::Lost,
        }
    }

    fn end(&mut self) {
        let end = End {
            is_cut_off: self.ending.is_none(),
            lock: self.lock(),
        };
        // A call ends once.
        let _ = self.progress.end.set(end);
        if let Some(view) = self.progress.view.get() {
            view.check_longest();
        }
        let is_told = end.is_cut_off && end.lock == LockAtEnd::Lost && self.is_watched;
        if is_told && let Some(hold) = self.hold.take() {
            self.environment.records.registry.lost(hold);
        }
        self.give_up();
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.end();
        self.progress.running.fetch_sub(1, Relaxed);
        let registry = &self.environment.records.registry;
        let is_cut_off = self.ending.is_none() && !registry.has_ended(&self.environment.host);
        if is_cut_off {
            self.environment.note(Seen::CallCutOff);
            // A call without a lock runs in its caller, also in the detached mode.
            let is_detached = self.rules.is_detached && self.progress.view.get().is_some();
            if is_detached && self.rules.on_lost != OnLost::Cancel {
                let text = "a detached call is cut off, and not by the loss of its lock";
                self.environment.fail(text);
            }
        }
    }
}
