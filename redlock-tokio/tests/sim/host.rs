//! The machine of a process: its clock, and what tells the world that the process has sent something.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_core::Timestamp;
use tokio::{sync::Notify, time::Instant};

use crate::clock::Rate;

/// What the slowest wall clock shows at the start of a run.
const WALL_CLOCK_START: Duration = Duration::from_secs(1_700_000_000);

/// What a process and its connections know of their machine.
pub(crate) struct Host {
    pub(crate) process: usize,
    /// Counts the starts of the process.
    pub(crate) life: u32,
    rate: Rate,
    /// What the clock showed when the process started.
    zero: u64,
    /// When the process started, in true time.
    started_at: u64,
    /// What time it is in the world.
    world: Arc<AtomicU64>,
    clock: Mutex<Reading>,
    /// How far the wall clock is ahead of the slowest, in nanoseconds.
    wall_clock_ahead: AtomicU64,
    /// Since when the process stands still, in true time. `u64::MAX` while it runs.
    stopped_at: AtomicU64,
    /// When it went on for the last time after it stood still, in true time.
    resumed_at: AtomicU64,
    /// The process has sent something, so that the world must look at it.
    pub(crate) has_sent: Notify,
}

/// What the clock shows, in nanoseconds since the start of the process.
struct Reading {
    /// The last reading. A clock does not go back.
    last: u64,
    /// Where tokio's clock was at the start, while the process runs. Between its steps the process does not
    /// run, and its clock follows the world.
    running_since: Option<Instant>,
    /// By how much the clock stood still while the process did.
    missed: u64,
    is_frozen: bool,
}

impl Host {
    pub(crate) fn new(
        process: usize,
        life: u32,
        rate: Rate,
        zero: u64,
        world: Arc<AtomicU64>,
    ) -> Self {
        Self {
            process,
            life,
            rate,
            zero,
            started_at: world.load(Relaxed),
            world,
            clock: Mutex::new(Reading {
                last: 0,
                running_since: None,
                missed: 0,
                is_frozen: false,
            }),
            wall_clock_ahead: AtomicU64::new(0),
            stopped_at: AtomicU64::new(u64::MAX),
            resumed_at: AtomicU64::new(0),
            has_sent: Notify::new(),
        }
    }

    /// Returns the name by which reports and the judge know the process.
    pub(crate) fn name(&self) -> String {
        format!("process {} (life {})", self.process, self.life)
    }

    /// Returns what the clock shows.
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_nanos(self.zero + self.elapsed())
    }

    /// Returns when the process went on for the last time after it stood still, in true time.
    pub(crate) fn resumed_at(&self) -> u64 {
        self.resumed_at.load(Relaxed)
    }

    pub(crate) fn stands_still(&self) -> bool {
        self.stopped_at.load(Relaxed) < u64::MAX
    }

    /// Returns whether the process stands still, or stood still after this time.
    pub(crate) fn stood_still_since(&self, since: u64) -> bool {
        let resumed_at = self.resumed_at();
        self.stands_still() || (resumed_at > 0 && resumed_at >= since)
    }

    /// Returns what the wall clock shows, since 1970. Somebody sets it to the true time, more or less.
    pub(crate) fn wall(&self) -> Duration {
        let ahead = self.wall_clock_ahead.load(Relaxed);
        WALL_CLOCK_START + Duration::from_nanos(self.now() + ahead)
    }

    /// Sets the wall clock to so many nanoseconds ahead of the slowest.
    pub(crate) fn set_wall_clock(&self, ahead: u64) {
        self.wall_clock_ahead.store(ahead, Relaxed);
    }

    /// Returns the true time that the process has reached.
    pub(crate) fn now(&self) -> u64 {
        let elapsed = self.elapsed() + self.reading().missed;
        self.started_at + self.rate.true_time(elapsed)
    }

    /// Returns the true time at which the clock shows `at`, if it is not stopped before.
    pub(crate) fn when(&self, at: Timestamp) -> u64 {
        let elapsed = at.as_nanos().saturating_sub(self.zero) + self.reading().missed;
        self.started_at.saturating_add(self.rate.true_time(elapsed))
    }

    /// Returns how much the clock has advanced at a true time.
    pub(crate) fn elapsed_at(&self, at: u64) -> u64 {
        let passed = self.rate.local(at.saturating_sub(self.started_at));
        passed.saturating_sub(self.reading().missed)
    }

    /// Lets the clock follow tokio's, which stood at `origin` when the process started.
    pub(crate) fn start_step(&self, origin: Instant) {
        self.reading().running_since = Some(origin);
    }

    /// Lets the clock follow the world again.
    pub(crate) fn end_step(&self) {
        self.elapsed();
        self.reading().running_since = None;
    }

    /// Stops the clock, as in a machine that sleeps and does not count the time.
    pub(crate) fn freeze(&self) {
        self.elapsed();
        self.reading().is_frozen = true;
    }

    /// Notes that the process stands still from now on.
    pub(crate) fn stop(&self) {
        self.stopped_at.store(self.world.load(Relaxed), Relaxed);
    }

    /// Notes that the process goes on. Lets a stopped clock go on. Returns since when the process stood still.
    pub(crate) fn thaw(&self) -> u64 {
        let now = self.world.load(Relaxed);
        self.resumed_at.store(now, Relaxed);
        let passed = self.elapsed_at(now);
        let mut reading = self.reading();
        if reading.is_frozen {
            reading.is_frozen = false;
            reading.missed += passed.saturating_sub(reading.last);
        }
        self.stopped_at.swap(u64::MAX, Relaxed)
    }

    fn elapsed(&self) -> u64 {
        let by_world = self.elapsed_at(self.world.load(Relaxed));
        let mut reading = self.reading();
        if !reading.is_frozen {
            let elapsed = match reading.running_since {
                // Runs last hours.
                Some(origin) => origin.elapsed().as_nanos() as u64,
                None => by_world,
            };
            reading.last = reading.last.max(elapsed);
        }
        reading.last
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.clock.lock().expect("no code panics under this lock")
    }
}
