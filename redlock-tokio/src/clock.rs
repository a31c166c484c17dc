use std::{fmt, sync::Arc, time::Duration};

use redlock_core::Timestamp;
use tokio::{runtime::Handle, task::JoinSet};

use crate::{foreign, sync::Mutex};

/// The clock that decides whether a lock is still valid.
///
/// The default, [`Clock::system`], is the right one for locks over real servers. [`Clock::tokio`] follows
/// tokio's own clock, which tests can pause. The keys of [`MemoryNode`](crate::MemoryNode)s expire by it, so a
/// test of hours takes a moment:
///
/// ```
/// use std::time::Duration;
///
/// use redlock_tokio::{Clock, MemoryNode, Redlock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = MemoryNode::new(); // its keys expire by tokio's clock
/// let builder = Redlock::builder().custom_nodes([node]);
/// let redlock = builder.clock(Clock::tokio()).build().await?;
///
/// let hour = Duration::from_secs(3600);
/// let guard = redlock.lock("order:42").max_hold(hour).await?;
/// tokio::time::sleep(hour / 2).await; // returns at once: time is paused
/// assert!(guard.is_valid()); // renewed meanwhile
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Clock {
    source: Source,
    /// The runtime whose timers a sleep uses if the caller is in none.
    runtime: Option<Handle>,
}

#[derive(Clone)]
enum Source {
    System,
    Tokio {
        zero: tokio::time::Instant,
    },
    Custom(Arc<Custom>),
    #[cfg(all(test, redlock_shuttle))]
    Explored(Arc<crate::threads::Time>),
}

struct Custom {
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    last: Mutex<LastAnswer>,
}

/// The last time that a clock told.
struct LastAnswer {
    told: Timestamp,
    /// When that was, by the system's clock.
    at: Timestamp,
}

impl Clock {
    /// Returns the system's monotonic clock: `CLOCK_BOOTTIME` on Linux, which goes on while the machine sleeps,
    /// as the expiry of keys on the servers does. Elsewhere it is the clock of [`std::time::Instant`], which may
    /// stand still during sleep.
    #[must_use]
    pub fn system() -> Self {
        Source::System.into()
    }

    /// Returns tokio's clock, which stands still while the runtime is
    /// [paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html). It also stands still while the machine
    /// sleeps, so use it only in tests.
    #[must_use]
    pub fn tokio() -> Self {
        let zero = tokio::time::Instant::now();
        Source::Tokio { zero }.into()
    }

    /// Returns a clock of your own, for tests of clock faults. It must not go backwards.
    ///
    /// Timers still run on tokio's clock. They only decide when the lock reads this clock. `now` is called on any
    /// thread, inside and outside the runtime. It must not block, and must not use the
    /// [`Redlock`](crate::Redlock). If it panics, time goes on from its last answer at the pace of the
    /// [system's clock](Self::system), so that locks still end in time. Time does not go back when it answers again.
    #[must_use]
    pub fn custom(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let custom = Custom {
            now: Box::new(now),
            last: Mutex::new(LastAnswer {
                told: Timestamp::ZERO,
                at: system_now(),
            }),
        };
        Source::Custom(Arc::new(custom)).into()
    }

    #[cfg(all(test, redlock_shuttle))]
    pub(crate) fn explored(time: Arc<crate::threads::Time>) -> Self {
        Source::Explored(time).into()
    }

    pub(crate) fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => system_now(),
            Source::Tokio { zero } => Timestamp::ZERO.saturating_add(zero.elapsed()),
            Source::Custom(custom) => custom.now(system_now),
            #[cfg(all(test, redlock_shuttle))]
            Source::Explored(time) => time.now(),
        }
    }

    /// Sleeps for this time.
    pub(crate) async fn sleep(&self, time: Duration) {
        let until = self.now().saturating_add(time);
        while self.now() < until {
            self.sleep_until(until).await;
        }
    }

    /// Sleeps until about `until`. May return early, so the caller must read the clock again.
    pub(crate) async fn sleep_until(&self, until: Timestamp) {
        #[cfg(all(test, redlock_shuttle))]
        if let Source::Explored(time) = &self.source {
            return time.sleep_until(until).await;
        }
        // Tokio's timers stand still while the machine sleeps, so the clock is read every second.
        const LONGEST: Duration = Duration::from_secs(1);
        let left = until.saturating_duration_since(self.now());
        self.wait(left.min(LONGEST)).await;
    }

    /// Waits for `future` for at most `limit`, by tokio's clock. Returns nothing if it is not ready by then.
    pub(crate) async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased; // An answer that is here counts.
            output = future => Some(output),
            () = self.wait(limit) => None,
        }
    }

    /// Has sleepers without a runtime use the timers of this one.
    pub(crate) fn on(mut self, runtime: &Handle) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Waits by tokio's clock. Returns early if the runtime ends.
    async fn wait(&self, time: Duration) {
        match &self.runtime {
            Some(runtime) if Handle::try_current().is_err() => {
                // Dropped with its task, which is aborted then.
                let mut sleeping = JoinSet::new();
                sleeping.spawn_on(async move { tokio::time::sleep(time).await }, runtime);
                sleeping.join_next().await;
            }
            _ => tokio::time::sleep(time).await,
        }
    }
}

impl From<Source> for Clock {
    fn from(source: Source) -> Self {
        let runtime = None;
        Self { source, runtime }
    }
}

impl Custom {
    /// `system` gives the time while the clock panics.
    fn now(&self, system: impl FnOnce() -> Timestamp) -> Timestamp {
        let answer = foreign::call(&self.now);
        let mut last = self.last.lock();
        let LastAnswer { told, at } = *last;
        let now = system();
        // Another thread may have told a later answer meanwhile.
        let told = match answer {
            Some(answer) => told.max(answer),
            None => told.saturating_add(now.saturating_duration_since(at)),
        };
        *last = LastAnswer { told, at: now };
        told
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::System => "Clock::system",
            Source::Tokio { .. } => "Clock::tokio",
            Source::Custom(_) => "Clock::custom",
            #[cfg(all(test, redlock_shuttle))]
            Source::Explored(_) => "Clock::explored",
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The clock starts with the machine, so neither part is negative.
    let seconds = Duration::from_secs(now.tv_sec.unsigned_abs());
    Timestamp::ZERO.saturating_add(seconds + Duration::from_nanos(now.tv_nsec.unsigned_abs()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::disallowed_methods, reason = "a test gives another clock")]
fn system_now() -> Timestamp {
    static ZERO: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    Timestamp::ZERO.saturating_add(ZERO.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Err` means that the clock panics. The seconds are those of the system's clock.
    fn told_by(answers: [(u64, Result<u64, ()>); 4]) -> [u64; 4] {
        const SECOND: u64 = 1_000_000_000;
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let Source::Custom(clock) = Clock::custom(move || {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let answer = answers[number].1;
            Timestamp::from_nanos(answer.expect("this clock panics on purpose") * SECOND)
        })
        .source
        else {
            unreachable!("it is a custom clock");
        };
        answers.map(|(system, _)| {
            let told = clock.now(|| Timestamp::from_nanos(system * SECOND));
            told.as_nanos() / SECOND
        })
    }

    #[test]
    fn a_clock_that_panics_goes_on_as_the_system_does_and_never_back() {
        let told = told_by([
            (0, Ok(100)),
            (60, Err(())),
            (3600, Err(())),
            (3601, Ok(101)),
        ]);
        assert_eq!(told, [100, 160, 3700, 3700]);
    }

    #[test]
    fn an_answer_that_another_thread_has_overtaken_does_not_turn_time_back() {
        let told = told_by([(0, Ok(101)), (0, Ok(100)), (1, Err(())), (1, Ok(103))]);
        assert_eq!(told, [101, 101, 102, 103]);
    }
}
