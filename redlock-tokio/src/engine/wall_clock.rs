use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_core::{FencingToken, Timestamp};

use crate::{
    Clock,
    sync::atomic::{AtomicU64, Ordering},
};

/// The wall clock, for fire times, and in microseconds for fencing tokens, for which it never goes back.
///
/// If the machine's clock is set back, this process would propose smaller tokens than before. So the wall clock is
/// kept as a lead over the clock of the locks, and the lead only grows.
pub(crate) struct WallClock {
    /// Returns the time since 1970.
    source: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The largest lead so far, in microseconds.
    lead: AtomicU64,
}

impl WallClock {
    /// Creates one that reads the system's clock.
    pub(crate) fn system() -> Self {
        Self::new(since_1970)
    }

    /// Creates one that reads this clock, which returns the time since 1970.
    pub(crate) fn new(source: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            source: Box::new(source),
            lead: AtomicU64::new(0),
        }
    }

    /// Returns the time since 1970. Unlike the proposals, it goes back if the clock does.
    pub(crate) fn since_1970(&self) -> Duration {
        (self.source)()
    }

    /// Reads both clocks, for the proposals from now on. Runs code of the user.
    pub(crate) fn note(&self, clock: &Clock) {
        let (wall, local) = read_both(&self.source, || clock.now());
        self.note_at(wall, local);
    }

    fn note_at(&self, wall: Duration, local: Timestamp) {
        let wall = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let lead = wall.saturating_sub(micros(local));
        self.lead.fetch_max(lead, Ordering::Relaxed);
    }

    /// Returns the first proposal of a lock that asks the nodes at `now`. [`note`](Self::note) was called when it was requested.
    pub(crate) fn propose(&self, now: Timestamp) -> FencingToken {
        let lead = self.lead.load(Ordering::Relaxed);
        FencingToken::new(lead.saturating_add(micros(now)))
    }
}

/// The longest time between two readings that count as one moment.
const SAME_MOMENT: Duration = Duration::from_millis(1);

/// Reads both clocks at one moment.
///
/// If the process was stopped between the two, both are read again. Otherwise the lead would be too small by the
/// pause, and a later holder could propose a smaller token than an earlier one. If the machine is too busy for that,
/// a few readings are enough, and the lead is rather too large.
fn read_both(wall: impl Fn() -> Duration, local: impl Fn() -> Timestamp) -> (Duration, Timestamp) {
    let mut before = local();
    for _ in 0..8 {
        let read = wall();
        let after = local();
        if after.saturating_duration_since(before) <= SAME_MOMENT {
            return (read, after);
        }
        before = after;
    }
    (wall(), before)
}

/// Returns the time since 1970. Before 1970 it is zero, and only the counters on the nodes order the tokens.
#[expect(clippy::disallowed_methods, reason = "a test gives another clock")]
fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

fn micros(time: Timestamp) -> u64 {
    time.as_nanos() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_700_000_000);

    fn propose(clock: &WallClock, wall: Duration, local: u64) -> u64 {
        let local = Timestamp::ZERO.saturating_add(Duration::from_secs(local));
        clock.note_at(wall, local);
        clock.propose(local).get()
    }

    #[test]
    fn goes_on_when_the_machines_clock_is_set_back() {
        let clock = WallClock::system();
        let start = START + Duration::from_micros(7);
        assert_eq!(propose(&clock, start, 40), 1_700_000_000_000_007);
        let hour = Duration::from_secs(3600);
        let later = 1_700_000_010_000_007;
        assert_eq!(propose(&clock, start - hour, 50), later);
        assert_eq!(propose(&clock, start + hour, 60), 1_700_003_600_000_007);
        // Before 1970 only the clock of the locks counts.
        let proposal = propose(&WallClock::system(), Duration::ZERO, 40);
        assert_eq!(proposal, 40_000_000);
    }

    #[test]
    fn a_pause_between_the_two_clocks_makes_the_lead_no_smaller() {
        use std::cell::Cell;

        let passed = Cell::new(40);
        let readings = Cell::new(0);
        let local = || Timestamp::ZERO.saturating_add(Duration::from_secs(passed.get()));
        let wall = || {
            let now = START + Duration::from_secs(passed.get());
            // The process is stopped for half a minute after the first reading.
            readings.set(readings.get() + 1);
            if readings.get() == 1 {
                passed.set(passed.get() + 30);
            }
            now
        };
        let (wall, local) = read_both(wall, local);
        assert_eq!(wall, START + Duration::from_secs(70));
        assert_eq!(micros(local), 70_000_000);
    }
}
