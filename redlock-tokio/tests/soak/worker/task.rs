mod waiter;

use std::{fmt::Debug, fs::File, pin::pin, sync::Arc, time::Duration};

use fastrand::Rng;
use futures::FutureExt;
use redlock_tokio::{
    Acquisition, Hold, Lock, LockError, LockGuard, LockOptions, LossReason, Redlock,
    errors::WithLockError,
};
use tokio::{
    sync::watch as switch,
    time::{sleep, timeout},
};

use super::{
    Order, journal,
    store::{Deadline, Store},
    watch::Watch,
};
use crate::{
    Result, bed, clock,
    line::{self, Line},
    settings::Breakage,
    support::MS,
    topology::MAX_TTL,
};

/// Longer than any step of a task. Times in which its process stands still are not counted.
pub(crate) const STEP_LIMIT: Duration = TICK.saturating_mul(TICKS);

const TICK: Duration = Duration::from_secs(1);
const TICKS: u32 = 30;

/// How long a lock is renewed whose holder holds it too long.
const MAX_HOLD: Duration = Duration::from_millis(500);

/// One of many tasks that compete for the locks.
pub(super) struct Task {
    pub(super) number: usize,
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
        if self.order.waits {
            return self.wait().await;
        }
        // Four keys are busier than the others.
        let key = match self.rng.u8(..3) {
            0 => self.rng.usize(..4),
            _ => self.rng.usize(..bed::KEYS),
        };
        if self.is_broken(Breakage::NoLock) {
            return self.pretend(key).await;
        }
        if self.is_broken(Breakage::Leak) {
            Box::leak(Box::new((File::open("/dev/null")?, vec![1; 50_000])));
        }
        match self.rng.u8(..100) {
            0..50 => self.hold(key).await,
            50..54 => self.hold_as_reader(key).await,
            54..58 => self.hold_as_writer(key).await,
            58..61 => self.hold_too_long(key).await,
            61..64 => self.hold_permit().await,
            64..87 => self.work_with(key).await,
            87..93 => self.extend(key).await,
            _ => self.rely_on_fence().await,
        }
    }

    /// Enters the critical section without the lock. Makes up a token and the news of a loss, which the judge must not
    /// accept.
    async fn pretend(&mut self, key: usize) -> Result<()> {
        const LATE: u64 = 5_000_000_000;
        let from = clock::now();
        let value = self.store.read(key).await?;
        sleep(self.pause()).await;
        let deadline = Deadline::after(|| MAX_TTL);
        self.write(key, value + 1, deadline).await?;
        let until = clock::now();
        journal::tell(&Line::Hold(line::Hold {
            keys: vec![key],
            from,
            until,
            valid_until: until,
            told: Some(until + LATE),
            fence: Some(1),
            is_shared: false,
        }));
        Ok(())
    }

    /// Locks one key or several in one of several ways, and lets them go in one of several ways.
    async fn hold(&mut self, key: usize) -> Result<()> {
        let mut keys = vec![key];
        if self.is_one_in(6) {
            keys.extend((0..self.rng.usize(1..3)).map(|_| self.rng.usize(..bed::KEYS)));
            keys.sort_unstable();
            keys.dedup();
        }
        let (ttl, wait) = self.times();
        let lock = self.redlock.lock_all(keys.iter().copied().map(bed::name));
        let is_fenced = self.is_one_in(10);
        let mut lock = lock.ttl(ttl).wait(wait).fenced(is_fenced);
        let mut pause = self.pause();
        if self.is_one_in(4) {
            lock = lock.wait(Duration::ZERO);
        }
        if self.is_one_in(4) {
            // For several ttls.
            lock = lock.ttl(self.ttls()[0]);
            pause = MS(self.rng.u64(1000..3000));
        }
        let gives_up = self.is_one_in(4);
        let patience = if gives_up {
            MS(self.rng.u64(..30))
        } else {
            MAX_TTL
        };
        let Ok(outcome) = timeout(patience, lock.into_future()).await else {
            journal::saw("cancelled");
            return Ok(());
        };
        let Some(guard) = admitted(outcome) else {
            return Ok(());
        };
        if is_fenced {
            journal::saw("fenced");
        }
        if keys.len() > 1 {
            journal::saw("several keys");
        }
        self.increment(&keys, guard.hold(), pause).await?;
        note_loss(&guard);
        match self.rng.u8(..6) {
            0 => drop(timeout(Duration::ZERO, guard.release()).await),
            1..4 => {
                let report = guard.release().await;
                journal::saw(format!("release: {:?}", report.outcome));
            }
            _ => drop(guard),
        }
        Ok(())
    }

    /// Reads a counter under the lock of a reader.
    async fn hold_as_reader(&mut self, key: usize) -> Result<()> {
        let (ttl, wait) = self.times();
        let lock = self.redlock.rw_lock(bed::name(key)).read();
        if let Some(guard) = admitted(lock.ttl(ttl).wait(wait).await) {
            if let Acquisition::Joined { .. } = guard.acquisition() {
                journal::saw("readers that joined");
            }
            self.read_twice(key, guard.hold()).await?;
        }
        Ok(())
    }

    /// Writes under the lock of a writer, and sometimes goes on as a reader.
    async fn hold_as_writer(&mut self, key: usize) -> Result<()> {
        let (ttl, wait) = self.times();
        let pause = self.pause();
        let lock = self.redlock.rw_lock(bed::name(key)).write();
        let Some(guard) = admitted(lock.ttl(ttl).wait(wait).await) else {
            return Ok(());
        };
        journal::saw("writers");
        self.increment(&[key], guard.hold(), pause).await?;
        if self.rng.bool() && guard.downgrade().await.is_ok() {
            journal::saw("downgrades");
            self.read_twice(key, guard.hold()).await?;
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
        let watch = self.watch(&[key], guard.hold());
        let value = self.store.read(key).await?;
        let deadline = watch.deadline();
        while watch.look() {
            sleep(MS(50)).await;
        }
        watch.end().await;
        let loss = note_loss(&guard);
        let is_over = matches!(loss, Some(LossReason::Expired | LossReason::MaxHold));
        match deadline.filter(|_| is_over) {
            Some(deadline) => self.write(key, value + 1, deadline).await,
            None => Ok(()),
        }
    }

    /// Takes a permit, whose slot protects a counter of its own.
    async fn hold_permit(&mut self) -> Result<()> {
        let (ttl, wait) = self.times();
        let pause = self.pause();
        let semaphore = self.redlock.semaphore(bed::SEMAPHORE, bed::SLOTS.len());
        let request = semaphore.acquire().ttl(ttl).wait(wait);
        if let Some(guard) = admitted(request.await) {
            let slot = guard.slot().ok_or("a permit has a slot")?;
            journal::saw(match slot {
                0 => "permit of the first slot",
                _ => "permit of another slot",
            });
            let keys = [bed::SLOTS.start + slot];
            self.increment(&keys, guard.hold(), pause).await?;
        }
        Ok(())
    }

    /// Works within `with`, which drops the work if the lock is lost. Sometimes gives up during the work, which then writes
    /// nothing: the lock does not protect a write that is still under way at the release.
    async fn work_with(&mut self, key: usize) -> Result<()> {
        let (lock, pause, gives_up) = (self.lock(key), self.pause(), self.is_one_in(3));
        let patience = if gives_up {
            MS(self.rng.u64(..300))
        } else {
            STEP_LIMIT
        };
        let work = async |hold: &Hold| {
            journal::saw("acquired");
            if !gives_up {
                return self.increment(&[key], hold, pause).await;
            }
            let watch = self.watch(&[key], hold);
            sleep(MS(200)).await;
            watch.end().await;
            Ok(())
        };
        match timeout(patience, lock.with(work)).await {
            Err(_) => journal::saw("work cancelled"),
            Ok(Err(error)) => cut_off(&error),
            Ok(Ok(outcome)) => return outcome,
        }
        Ok(())
    }

    /// Extends the lock explicitly.
    async fn extend(&mut self, key: usize) -> Result<()> {
        let lock = self.lock(key).options(LockOptions::new().no_renewal());
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        for _ in 0..3 {
            let pause = self.pause() + MS(self.rng.u64(..400));
            self.increment(&[key], guard.hold(), pause).await?;
            match guard.extend().await {
                Ok(()) => journal::saw("extension: done"),
                Err(error) => journal::saw(format!("extension: {}", variant(&error))),
            }
        }
        note_loss(&guard);
        Ok(())
    }

    /// Writes to a counter that nothing protects but fences. Some holders pause until the lock is lost, before they
    /// show their token or before they write. A holder whose lock is over still tries to write.
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
        let Some(guard) = admitted(lock.await) else {
            return Ok(());
        };
        journal::saw("fenced");
        let fence = guard.fencing_token().ok_or("a fenced lock has a token")?;
        let watch = self.watch(&[key], guard.hold());
        sleep(before_claim).await;
        if self.store.claim(key, fence).await? {
            let value = self.store.read(key).await?;
            sleep(before_write).await;
            journal::saw(
                match self.store.write_fenced(key, value + 1, fence).await? {
                    true => "writes by fence",
                    false => "writes refused because of a larger token",
                },
            );
        } else {
            journal::saw(match watch.look() {
                true => "tokens refused within the validity",
                false => "tokens refused after a loss",
            });
        }
        watch.end().await;
        Ok(())
    }

    /// Increments the counter of each key of a hold: reads, pauses, and writes. The store refuses writes after the end
    /// of validity.
    async fn increment(&self, keys: &[usize], hold: &Hold, pause: Duration) -> Result<()> {
        let watch = self.watch(keys, hold);
        let mut values = Vec::new();
        for key in keys {
            values.push(self.store.read(*key).await?);
        }
        sleep(pause).await;
        for (key, value) in keys.iter().zip(values) {
            let Some(deadline) = watch.deadline() else {
                journal::saw("writes not tried after a loss");
                break;
            };
            self.write(*key, value + 1, deadline).await?;
        }
        watch.end().await;
        Ok(())
    }

    /// Sets a counter, unless the deadline has passed.
    async fn write(&self, key: usize, value: u64, deadline: Deadline) -> Result<()> {
        journal::saw(match self.store.write(key, value, deadline).await? {
            true => "writes",
            false => "writes refused because they were late",
        });
        Ok(())
    }

    /// Reads a counter twice. While a reader has the lock, nobody writes.
    async fn read_twice(&mut self, key: usize, hold: &Hold) -> Result<()> {
        let pause = self.pause();
        let mut watch = self.watch(&[key], hold);
        watch.is_shared = true;
        let before = self.store.read(key).await?;
        sleep(pause).await;
        let is_same = self.store.read(key).await? == before;
        journal::saw(match (is_same, watch.look()) {
            (true, _) => "reads",
            (false, true) => "torn reads",
            (false, false) => "torn reads after a loss",
        });
        watch.end().await;
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

    fn watch(&self, keys: &[usize], hold: &Hold) -> Watch {
        Watch::new(keys, hold, !self.is_broken(Breakage::Deaf))
    }

    fn is_one_in(&mut self, number: u8) -> bool {
        self.rng.u8(..number) == 0
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
    journal::saw(format!("not acquired: {}", variant(error)));
}

fn cut_off(error: &WithLockError) {
    match error {
        WithLockError::Lock(error) => refused(error),
        WithLockError::Lost(reason) => journal::saw(format!("lost: {reason:?}")),
        error => journal::saw(format!("work ended: {}", variant(error))),
    }
}

fn note_loss(guard: &LockGuard) -> Option<LossReason> {
    let reason = guard.lost().now_or_never();
    reason.inspect(|it| journal::saw(format!("lost: {it:?}")))
}

fn variant(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    let mut words = text.split(|it: char| !it.is_alphanumeric());
    words.next().unwrap_or_default().into()
}
