use std::time::Duration;

use redlock_core::Timestamp;

use super::{hold_times::HoldTimes, streak::Streak};
use crate::{Key, engine::hashed_table::HashedTable, random::Random};

/// A hold that begins this soon after a release continues the streak. After a longer pause, other processes had
/// the time to get the lock.
const IN_A_ROW: Duration = Duration::from_millis(2);

/// For how long the times of the last holds are remembered after a release.
const REMEMBERED: Duration = Duration::from_secs(60);

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

/// What is known of a key from before.
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
