use std::{fmt::Debug, fs::File, time::Duration};

use fastrand::Rng;
use futures::FutureExt;
use redlock_tokio::{
    ExtendError, Lock, LockError, LockGuard, LockOptions, LossReason, Redlock, WithLockError,
};
use tokio::{
    sync::watch as switch,
    time::{sleep, timeout},
};

use super::{journal, store::Store, watch::Watch};
use crate::{Result, bed, settings::Settings, support::MS};

/// Longer than any turn of a task and any stop of its process.
pub(crate) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// One of many tasks that compete for the locks.
pub(super) struct Task {
    pub(super) redlock: Redlock,
    pub(super) store: Store,
    /// Whether the task locks at all.
    pub(super) locks: bool,
    pub(super) ttls: [Duration; 3],
    pub(super) longest_pause: Duration,
    /// Whether the task leaks memory and files.
    pub(super) leaks: bool,
    pub(super) rng: Rng,
    pub(super) stopped: switch::Receiver<bool>,
}

impl Task {
    /// Takes turns until the worker stops.
    pub(super) async fn run(mut self) -> Result<()> {
        while !*self.stopped.borrow() {
            let rest = MS(self.rng.u64(..2000));
            // The sender lives until then, so this is not an error.
            let stopped = self.stopped.wait_for(|it| *it).map(drop);
            if timeout(rest, stopped).await.is_ok() {
                break;
            }
            match timeout(TURN_LIMIT, self.turn()).await {
                Ok(outcome) => outcome?,
                Err(_) => journal::saw("hang"),
            }
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<()> {
        // Four keys are busier than the others.
        let key = match self.rng.u8(..3) {
            0 => self.rng.usize(..4),
            _ => self.rng.usize(..bed::KEYS),
        };
        if !self.locks {
            return self.pretend(key).await;
        }
        if self.leaks {
            Box::leak(Box::new((File::open("/dev/null")?, vec![1; 50_000])));
        }
        match self.rng.u8(..100) {
            0..20 => self.release(key).await,
            20..40 => self.leave(key).await,
            40..60 => self.work_with(key).await,
            60..75 => self.cancel(key).await,
            75..85 => self.cancel_work(key).await,
            85..91 => self.extend(key).await,
            91..97 => self.hold_long(key).await,
            _ => self.hold_too_long(key).await,
        }
    }

    /// Locks and releases, and sometimes does not wait for the release.
    async fn release(&mut self, key: usize) -> Result<()> {
        if let Some(guard) = self.acquire(key).await {
            self.increment(key, Some(&guard)).await?;
            let release = guard.release();
            if self.rng.u8(..4) == 0 {
                drop(timeout(Duration::ZERO, release).await);
            } else {
                let report = release.await;
                journal::saw(format!("release: {:?}", report.outcome));
            }
        }
        Ok(())
    }

    /// Makes one attempt, and drops the guard.
    async fn leave(&mut self, key: usize) -> Result<()> {
        let outcome = self.redlock.try_lock(bed::name(key)).await;
        if let Some(guard) = admitted(outcome) {
            self.increment(key, Some(&guard)).await?;
        }
        Ok(())
    }

    /// Works within `with`, which drops the work if the lock is lost.
    async fn work_with(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key);
        let pause = self.pause();
        let store = &self.store;
        let work = async |hold: &redlock_tokio::Hold| {
            journal::saw("acquired");
            increment(store, &mut Watch::new(key, Some(hold)), key, pause).await
        };
        match lock.with(work).await {
            Ok(outcome) => outcome?,
            Err(error) => cut_off(&error),
        }
        Ok(())
    }

    /// Gives up during the wait for the lock.
    async fn cancel(&mut self, key: usize) -> Result<()> {
        let patience = MS(self.rng.u64(..30));
        match timeout(patience, self.lock(key).into_future()).await {
            Err(_) => journal::saw("cancelled"),
            Ok(outcome) => {
                if let Some(guard) = admitted(outcome) {
                    self.increment(key, Some(&guard)).await?;
                }
            }
        }
        Ok(())
    }

    /// Gives up during the work. The work writes nothing, because the lock does not protect a write that is
    /// still under way at the release.
    async fn cancel_work(&mut self, key: usize) -> Result<()> {
        let patience = MS(self.rng.u64(..300));
        let work = async |hold: &redlock_tokio::Hold| {
            journal::saw("acquired");
            let _watch = Watch::new(key, Some(hold));
            sleep(MS(200)).await;
        };
        match timeout(patience, self.lock(key).with(work)).await {
            Err(_) => journal::saw("work cancelled"),
            Ok(Err(error)) => cut_off(&error),
            Ok(Ok(())) => {}
        }
        Ok(())
    }

    /// Extends the lock explicitly.
    async fn extend(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).options(LockOptions::new().no_renewal());
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        let mut watch = Watch::new(key, Some(&guard));
        for _ in 0..3 {
            let pause = self.pause();
            increment(&self.store, &mut watch, key, pause).await?;
            sleep(MS(self.rng.u64(..400))).await;
            journal::saw(match guard.extend().await {
                Ok(()) => "extension: done",
                Err(ExtendError::NoQuorum { .. }) => "extension: no quorum",
                Err(ExtendError::MaxHold { .. }) => "extension: max hold",
                Err(ExtendError::Lost(_)) => "extension: lost",
                Err(_) => "extension: other",
            });
        }
        note_loss(&guard);
        Ok(())
    }

    /// Holds the lock for several ttls.
    async fn hold_long(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).ttl(self.ttls[0]);
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        let pause = MS(self.rng.u64(1000..3000));
        self.increment_in(key, Some(&guard), pause).await?;
        note_loss(&guard);
        Ok(())
    }

    /// Holds the lock until it is lost.
    async fn hold_too_long(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).ttl(self.ttls[0]).max_hold(MS(500));
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        let mut watch = Watch::new(key, Some(&guard));
        while watch.look() {
            sleep(MS(50)).await;
        }
        lost(guard.lost().await);
        drop(watch);
        Ok(())
    }

    /// Works without the lock.
    async fn pretend(&mut self, key: usize) -> Result<()> {
        journal::saw("acquired");
        self.increment(key, None).await
    }

    async fn acquire(&mut self, key: usize) -> Option<LockGuard> {
        admitted(self.lock(key).await)
    }

    /// Returns a lock with a random ttl and a random wait.
    fn lock(&mut self, key: usize) -> Lock {
        let ttl = self.ttls[self.rng.usize(..3)];
        let wait = MS(self.rng.u64(100..1500));
        self.redlock.lock(bed::name(key)).ttl(ttl).wait(wait)
    }

    async fn increment(&mut self, key: usize, guard: Option<&LockGuard>) -> Result<()> {
        let pause = self.pause();
        self.increment_in(key, guard, pause).await
    }

    async fn increment_in(
        &self,
        key: usize,
        guard: Option<&LockGuard>,
        pause: Duration,
    ) -> Result<()> {
        let mut watch = Watch::new(key, guard.map(|it| it.hold()));
        increment(&self.store, &mut watch, key, pause).await
    }

    fn pause(&mut self) -> Duration {
        self.longest_pause.mul_f64(self.rng.f64())
    }
}

/// Runs the critical section: reads, waits and writes.
async fn increment(store: &Store, watch: &mut Watch, key: usize, pause: Duration) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(100);
    let value = store.read(key).await?;
    let mut left = pause;
    while !left.is_zero() {
        let part = left.min(LOOK);
        sleep(part).await;
        watch.look();
        left -= part;
    }
    let Some(deadline) = watch.deadline() else {
        journal::saw("writes not tried after a loss");
        return Ok(());
    };
    if store.write(key, value + 1, deadline).await? {
        journal::saw("writes");
    } else {
        journal::saw("writes refused because they were late");
    }
    Ok(())
}

fn admitted(outcome: Result<LockGuard, LockError>) -> Option<LockGuard> {
    match outcome {
        Ok(guard) => {
            journal::saw("acquired");
            Some(guard)
        }
        Err(error) => {
            refused(&error);
            None
        }
    }
}

/// Counts a failed lock, by the name of its error.
fn refused(error: &LockError) {
    if Settings::traces() && !error.is_contended() {
        eprintln!("{error}");
    }
    journal::saw(format!("not acquired: {}", variant(error)));
}

fn cut_off(error: &WithLockError) {
    match error {
        WithLockError::Lock(error) => refused(error),
        WithLockError::Lost(reason) => lost(*reason),
        error => journal::saw(format!("work ended: {}", variant(error))),
    }
}

fn lost(reason: LossReason) {
    if Settings::traces() && reason != LossReason::MaxHold {
        eprintln!("lost: {reason}");
    }
    journal::saw(format!("lost: {reason:?}"));
}

fn note_loss(guard: &LockGuard) {
    if let Some(reason) = guard.lost().now_or_never() {
        lost(reason);
    }
}

fn variant(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    text.split(|it: char| !it.is_alphanumeric())
        .next()
        .unwrap_or_default()
        .into()
}
