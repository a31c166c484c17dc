use std::time::Duration;

use redlock_core::Timestamp;

use crate::{Key, engine::hashed_table::HashedTable, options::QueuePolicy, random::Random};

/// A hold that begins this soon after a release continues the streak. After a longer pause, other processes had
/// the time to get the lock.
const IN_A_ROW: Duration = Duration::from_millis(2);

/// For how long the times of the last holds are remembered after a release.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many of the last holds count.
const COUNTED: usize = 8;

/// The fewest holds to estimate by. With fewer, a single long hold would mislead.
const ENOUGH_TO_EXPECT: usize = 3;

/// The past of keys that nobody holds or wants now. A key that is forgotten starts a new streak, which costs other
/// processes one turn, and has no estimate of its wait at first.
///
/// Streaks are remembered because a process that always comes back at once would keep all others out.
#[derive(Debug)]
pub(super) struct Recent(HashedTable<Released>);

#[derive(Debug)]
struct Released {
    past: Past,
    at: Timestamp,
}

/// The history of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) streak: Option<Streak>,
    pub(super) holds: HoldTimes,
}

impl Recent {
    pub(super) fn new(random: &Random) -> Self {
        Self(HashedTable::new(random))
    }

    /// Remembers the past of a key that nobody holds or wants any more.
    pub(super) fn note(&mut self, key: &Key, past: Past, at: Timestamp) {
        if past.streak.is_some() || !past.holds.is_empty() {
            self.0.insert(key, Released { past, at });
        }
    }

    /// Returns the past of a key that is wanted again. The streak is part of it if it is continued.
    pub(super) fn take(&mut self, key: &Key, now: Timestamp) -> Past {
        let Some(Released { past, at }) = self.0.remove(key) else {
            return Past::default();
        };
        let pause = now.saturating_duration_since(at);
        Past {
            streak: past.streak.filter(|_| pause < IN_A_ROW),
            holds: if pause < REMEMBERED {
                past.holds
            } else {
                HoldTimes::default()
            },
        }
    }
}

/// Holds that follow each other within this process while other processes wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    since: Timestamp,
}

impl Streak {
    /// Starts with a hold that began at `since`.
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since }
    }

    pub(super) fn may_go_on(&self, now: Timestamp, policy: &QueuePolicy) -> bool {
        now.saturating_duration_since(self.since) < policy.streak
    }
}

/// How long the last holds of a lock took, in whole microseconds.
///
/// They are only a guess at the next holds: the median is what to expect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldTimes {
    /// The newest overwrites the oldest.
    micros: [u32; COUNTED],
    counted: usize,
    next: usize,
}

impl HoldTimes {
    pub(super) fn note(&mut self, hold: Duration) {
        self.micros[self.next] = u32::try_from(hold.as_micros()).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % COUNTED;
        self.counted = (self.counted + 1).min(COUNTED);
    }

    /// Returns the median, or `None` of fewer than three holds.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut sorted = self.micros;
        let sorted = &mut sorted[..self.counted];
        sorted.sort_unstable();
        let middle = sorted.get(self.counted.checked_sub(1)? / 2)?;
        (self.counted >= ENOUGH_TO_EXPECT).then(|| micros(*middle))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counted == 0
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: Duration = Duration::from_nanos(1);

    #[test]
    fn a_streak_is_remembered_for_two_milliseconds_and_hold_times_for_a_minute() {
        let release = Timestamp::ZERO;
        let streak = Some(Streak::new(release));
        let none = HoldTimes::default();
        let mut holds = none;
        holds.note(Duration::from_millis(1));
        let key = Key::new("k").unwrap();
        let known_after = |pause, streak, holds| {
            let mut recent = Recent::new(&Random::system());
            recent.note(&key, Past { streak, holds }, release);
            let known = recent.take(&key, release.saturating_add(pause));
            (known.streak.is_some(), !known.holds.is_empty())
        };
        for (pause, knows_streak, knows_holds) in [
            (Duration::ZERO, true, true),
            (IN_A_ROW - NANO, true, true),
            (IN_A_ROW, false, true),
            (REMEMBERED - NANO, false, true),
            (REMEMBERED, false, false),
        ] {
            assert_eq!(
                known_after(pause, streak, holds),
                (knows_streak, knows_holds)
            );
            assert_eq!(known_after(pause, streak, none), (knows_streak, false));
            assert_eq!(known_after(pause, None, holds), (false, knows_holds));
        }
    }
}
