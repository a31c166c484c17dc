use std::{fmt, sync::Arc, time::Duration};

use redlock_core::Timestamp;

/// Where the time comes from that decides whether a lock is still valid.
///
/// The default, [`Clock::system`], is what locks over real servers need. [`Clock::tokio`] follows
/// tokio's own clock instead, which tests can pause: with
/// [`MemoryNode`](crate::MemoryNode)s, whose keys expire by it, hours of lock life pass in a moment.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Tokio { zero: tokio::time::Instant },
    Custom(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    /// The system's monotonic clock that keeps counting while the machine sleeps, because a key's
    /// expiry on a server does: `CLOCK_BOOTTIME` on Linux. Elsewhere it is that of
    /// [`std::time::Instant`], which may stand still during sleep.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Tokio's clock, which stands still while the runtime is
    /// [paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html). It does not count while
    /// the machine sleeps; use it in tests.
    #[must_use]
    pub fn tokio() -> Self {
        Self(Source::Tokio {
            zero: tokio::time::Instant::now(),
        })
    }

    /// A clock of your own, for tests of clock faults. It must not go backwards.
    ///
    /// Timers still run on tokio's clock; they only decide when this one is looked at.
    #[must_use]
    pub fn custom(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Source::Custom(Arc::new(now)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Tokio { zero } => Timestamp::ZERO.saturating_add(zero.elapsed()),
            Source::Custom(now) => now(),
        }
    }

    /// Sleeps until about `until`. May return early; look at the clock again.
    pub(crate) async fn sleep_until(&self, until: Timestamp) {
        // Tokio's timers stand still while the machine sleeps, so look at the clock every second.
        const LONGEST: Duration = Duration::from_secs(1);
        let left = until.saturating_duration_since(self.now());
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Clock::system",
            Source::Tokio { .. } => "Clock::tokio",
            Source::Custom(_) => "Clock::custom",
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Both parts count from the start of the machine, so neither is negative.
    let seconds = Duration::from_secs(now.tv_sec.unsigned_abs());
    Timestamp::ZERO.saturating_add(seconds + Duration::from_nanos(now.tv_nsec.unsigned_abs()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system_now() -> Timestamp {
    static ZERO: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    Timestamp::ZERO.saturating_add(ZERO.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_passes() {
        let clock = Clock::system();
        let before = clock.now();
        while clock.now() == before {}
        assert!(clock.now() > before);
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_time_passes_when_it_is_told_to() {
        let clock = Clock::tokio();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(
            clock.now().saturating_duration_since(before),
            Duration::from_secs(3600)
        );
    }
}
