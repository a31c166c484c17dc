use std::{fmt::Debug, fs::File, pin::pin, sync::Arc, time::Duration};

use fastrand::Rng;
use futures::FutureExt;
use redlock_tokio::{
    Acquisition, ExtendError, Hold, Lock, LockError, LockGuard, LockOptions, LossReason, Redlock,
    errors::WithLockError,
};
use tokio::{
    sync::watch as switch,
    time::{sleep, timeout},
};

use super::{
    Order, journal,
    section::{Pauses, increment, increment_by_fence, read_twice, write},
    store::Store,
    watch::Watch,
};
use crate::{
    Result, bed,
    settings::{Breakage, Settings},
    support::MS,
};

/// Longer than any step of a task. Times in which its process stands still are not counted.
pub(crate) const STEP_LIMIT: Duration = TICK.saturating_mul(TICKS);

const TICK: Duration = Duration::from_secs(1);
const TICKS: u32 = 30;

/// How long a lock is renewed whose holder holds it too long.
const MAX_HOLD: Duration = Duration::from_millis(500);

/// One of many tasks that compete for the locks.
pub(super) struct Task {
    pub(super) redlock: Redlock,
    pub(super) store: Store,
    pub(super) order: Arc<Order>,
    pub(super) rng: Rng,
    pub(super) stopped: switch::Receiver<bool>,
}

impl Task {
    /// Takes steps until the worker stops.
    pub(super) async fn run(mut self) -> Result<()> {
        while !*self.stopped.borrow() {
            let rest = MS(self.rng.u64(..2000));
            // The sender lives until then, so this is not an error.
            let stopped = self.stopped.wait_for(|it| *it).map(drop);
            if timeout(rest, stopped).await.is_ok() {
                break;
            }
            self.step_in_time().await?;
        }
        Ok(())
    }

    async fn step_in_time(&mut self) -> Result<()> {
        let mut step = pin!(self.step());
        // A stop of the process is one tick, however long it lasts.
        for _ in 0..TICKS {
            if let Ok(outcome) = timeout(TICK, &mut step).await {
                return outcome;
            }
        }
        journal::saw("hang");
        Ok(())
    }

    async fn step(&mut self) -> Result<()> {
        // Four keys are busier than the others.
        let key = match self.rng.u8(..3) {
            0 => self.rng.usize(..4),
            _ => self.rng.usize(..bed::KEYS),
        };
        if self.is_broken(Breakage::NoLock) {
            journal::saw("acquired");
            return self.increment_in(&[key], None).await;
        }
        if self.is_broken(Breakage::Leak) {
            Box::leak(Box::new((File::open("/dev/null")?, vec![1; 50_000])));
        }
        match self.rng.u8(..100) {
            0..13 => self.release(key).await,
            13..17 => self.read(key).await,
            17..21 => self.write(key).await,
            21..33 => self.drop_guard(key).await,
            33..48 => self.work_with(key).await,
            48..60 => self.cancel(key).await,
            60..68 => self.cancel_work(key).await,
            68..74 => self.extend(key).await,
            74..79 => self.hold_long(key).await,
            79..82 => self.hold_too_long(key).await,
            82..87 => self.lock_several(key).await,
            87..90 => self.acquire_permit().await,
            90..93 => self.lock_fenced(key).await,
            _ => self.rely_on_fence().await,
        }
    }

    /// Locks and releases, and sometimes does not wait for the release.
    async fn release(&mut self, key: usize) -> Result<()> {
        let outcome = self.lock(key).await;
        if let Some(guard) = self.increment(&[key], outcome).await? {
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
    async fn drop_guard(&mut self, key: usize) -> Result<()> {
        let outcome = self.redlock.try_lock(bed::name(key)).await;
        self.increment(&[key], outcome).await.map(drop)
    }

    /// Works within `with`, which drops the work if the lock is lost.
    async fn work_with(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key);
        let pause = self.pause();
        let work = async |hold: &Hold| {
            journal::saw("acquired");
            let watch = self.watch(&[key], Some(hold));
            increment(&self.store, &watch, &[key], pause).await?;
            watch.end().await;
            Ok(())
        };
        lock.with(work).await.unwrap_or_else(|error| {
            cut_off(&error);
            Ok(())
        })
    }

    /// Gives up during the wait for the lock.
    async fn cancel(&mut self, key: usize) -> Result<()> {
        let patience = MS(self.rng.u64(..30));
        match timeout(patience, self.lock(key).into_future()).await {
            Err(_) => journal::saw("cancelled"),
            Ok(outcome) => drop(self.increment(&[key], outcome).await?),
        }
        Ok(())
    }

    /// Gives up during the work. The work writes nothing, because the lock does not protect a write that is
    /// still under way at the release.
    async fn cancel_work(&mut self, key: usize) -> Result<()> {
        let patience = MS(self.rng.u64(..300));
        let lock = self.lock(key);
        let work = async |hold: &Hold| {
            journal::saw("acquired");
            let watch = self.watch(&[key], Some(hold));
            sleep(MS(200)).await;
            watch.end().await;
        };
        match timeout(patience, lock.with(work)).await {
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
        let watch = self.watch(&[key], Some(guard.hold()));
        for _ in 0..3 {
            let pause = self.pause();
            increment(&self.store, &watch, &[key], pause).await?;
            sleep(MS(self.rng.u64(..400))).await;
            journal::saw(match guard.extend().await {
                Ok(()) => "extension: done",
                Err(ExtendError::NoQuorum { .. }) => "extension: no quorum",
                Err(ExtendError::MaxHold { .. }) => "extension: max hold",
                Err(ExtendError::Lost(_)) => "extension: lost",
                Err(_) => "extension: other",
            });
        }
        watch.end().await;
        note_loss(&guard);
        Ok(())
    }

    /// Holds the lock for several ttls.
    async fn hold_long(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).ttl(self.ttls()[0]);
        if let Some(guard) = admitted(lock.await) {
            let pause = MS(self.rng.u64(1000..3000));
            let watch = self.watch(&[key], Some(guard.hold()));
            increment(&self.store, &watch, &[key], pause).await?;
            watch.end().await;
            note_loss(&guard);
        }
        Ok(())
    }

    /// Holds the lock until the end of its validity, and only then writes. A lock that is lost earlier may have another
    /// holder before that end.
    async fn hold_too_long(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).ttl(self.ttls()[0]).max_hold(MAX_HOLD);
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        let watch = self.watch(&[key], Some(guard.hold()));
        let value = self.store.read(key).await?;
        let deadline = watch.deadline();
        let hold = guard.hold().clone();
        while watch.look() {
            sleep(MS(50)).await;
        }
        watch.end().await;
        note_loss(&guard);
        let loss = hold.lost().now_or_never();
        let is_over = matches!(loss, Some(LossReason::Expired | LossReason::MaxHold));
        match deadline.filter(|_| is_over) {
            Some(deadline) => write(&self.store, key, value + 1, deadline).await,
            None => Ok(()),
        }
    }

    /// Locks several keys at once.
    async fn lock_several(&mut self, key: usize) -> Result<()> {
        let more = self.rng.usize(1..3);
        let others = (0..more).map(|_| self.rng.usize(..bed::KEYS));
        let mut keys: Vec<_> = others.chain([key]).collect();
        keys.sort_unstable();
        keys.dedup();
        let (ttl, wait) = self.times();
        let lock = self.redlock.lock_all(keys.iter().copied().map(bed::name));
        let outcome = lock.ttl(ttl).wait(wait).await;
        let guard = self.increment(&keys, outcome).await?;
        if guard.is_some() && keys.len() > 1 {
            journal::saw("several keys");
        }
        Ok(())
    }

    /// Takes a permit, whose slot protects a counter of its own.
    async fn acquire_permit(&mut self) -> Result<()> {
        let (ttl, wait) = self.times();
        let semaphore = self.redlock.semaphore(bed::SEMAPHORE, bed::SLOTS.len());
        let request = semaphore.acquire().ttl(ttl).wait(wait);
        if let Some(guard) = admitted(request.await) {
            let slot = guard.slot().ok_or("a permit has a slot")?;
            journal::saw(match slot {
                0 => "permit of the first slot",
                _ => "permit of another slot",
            });
            let keys = [bed::SLOTS.start + slot];
            self.increment_in(&keys, Some(guard.hold())).await?;
        }
        Ok(())
    }

    /// Reads a counter under the lock of a reader.
    async fn read(&mut self, key: usize) -> Result<()> {
        let (ttl, wait) = self.times();
        let lock = self.redlock.rw_lock(bed::name(key)).read();
        if let Some(guard) = admitted(lock.ttl(ttl).wait(wait).await) {
            if let Acquisition::Joined { .. } = guard.acquisition() {
                journal::saw("readers that joined");
            }
            self.read_twice(key, &guard).await?;
        }
        Ok(())
    }

    /// Writes under the lock of a writer, and sometimes goes on as a reader.
    async fn write(&mut self, key: usize) -> Result<()> {
        let (ttl, wait) = self.times();
        let lock = self.redlock.rw_lock(bed::name(key)).write();
        let outcome = lock.ttl(ttl).wait(wait).await;
        let Some(guard) = self.increment(&[key], outcome).await? else {
            return Ok(());
        };
        journal::saw("writers");
        if self.rng.bool() && guard.downgrade().await.is_ok() {
            journal::saw("downgrades");
            self.read_twice(key, &guard).await?;
        }
        Ok(())
    }

    async fn read_twice(&mut self, key: usize, guard: &LockGuard) -> Result<()> {
        let pause = self.pause();
        let watch = self.watch(&[key], Some(guard.hold())).shared();
        read_twice(&self.store, &watch, key, pause).await?;
        watch.end().await;
        Ok(())
    }

    /// Locks a key with a fence that other tasks lock without one.
    async fn lock_fenced(&mut self, key: usize) -> Result<()> {
        let outcome = self.lock(key).fenced(true).await;
        if self.increment(&[key], outcome).await?.is_some() {
            journal::saw("fenced");
        }
        Ok(())
    }

    /// Writes to a counter that nothing protects but fences. Some holders pause until the lock is lost, before they
    /// show their token or before they write.
    async fn rely_on_fence(&mut self) -> Result<()> {
        let key = self.rng.usize(bed::FENCED_KEYS);
        let long = self.ttls()[0] + MAX_HOLD + MS(self.rng.u64(1000..3000));
        let (short, overstays) = (self.pause(), self.rng.bool());
        let (before_claim, before_write) = match (overstays, self.rng.bool()) {
            (false, _) => (Duration::ZERO, short),
            (true, false) => (Duration::ZERO, long),
            (true, true) => (long, short),
        };
        let mut lock = self.lock(key).fenced(true);
        if overstays {
            lock = lock.ttl(self.ttls()[0]).max_hold(MAX_HOLD);
        }
        if let Some(guard) = admitted(lock.await) {
            journal::saw("fenced");
            let fence = guard.fencing_token().ok_or("a fenced lock has a token")?;
            let watch = self.watch(&[key], Some(guard.hold()));
            let pauses = Pauses {
                before_claim,
                before_write,
            };
            increment_by_fence(&self.store, &watch, key, fence, pauses).await?;
            watch.end().await;
        }
        Ok(())
    }

    /// Returns a lock with a random ttl and a random wait.
    fn lock(&mut self, key: usize) -> Lock {
        let (ttl, wait) = self.times();
        self.redlock.lock(bed::name(key)).ttl(ttl).wait(wait)
    }

    /// Returns a random ttl and a random wait.
    fn times(&mut self) -> (Duration, Duration) {
        let ttl = self.ttls()[self.rng.usize(..3)];
        (ttl, MS(self.rng.u64(100..1500)))
    }

    fn ttls(&self) -> [Duration; 3] {
        self.order.topology.ttls()
    }

    /// Increments the counters of these keys, if they were locked. Returns the guard.
    async fn increment(
        &mut self,
        keys: &[usize],
        outcome: Result<LockGuard, LockError>,
    ) -> Result<Option<LockGuard>> {
        let guard = admitted(outcome);
        if let Some(guard) = &guard {
            self.increment_in(keys, Some(guard.hold())).await?;
        }
        Ok(guard)
    }

    async fn increment_in(&mut self, keys: &[usize], hold: Option<&Hold>) -> Result<()> {
        let pause = self.pause();
        let watch = self.watch(keys, hold);
        increment(&self.store, &watch, keys, pause).await?;
        watch.end().await;
        Ok(())
    }

    fn watch(&self, keys: &[usize], hold: Option<&Hold>) -> Watch {
        Watch::new(keys, hold, !self.is_broken(Breakage::Deaf))
    }

    fn is_broken(&self, breakage: Breakage) -> bool {
        self.order.breakage == Some(breakage)
    }

    fn pause(&mut self) -> Duration {
        self.order.topology.longest_pause().mul_f64(self.rng.f64())
    }
}

/// Counts a granted or a failed lock, the latter by the name of its error.
fn admitted(outcome: Result<LockGuard, LockError>) -> Option<LockGuard> {
    match &outcome {
        Ok(_) => journal::saw("acquired"),
        Err(error) => refused(error),
    }
    outcome.ok()
}

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
    let mut words = text.split(|it: char| !it.is_alphanumeric());
    words.next().unwrap_or_default().into()
}
