use std::time::Duration;

use redlock_core::Timestamp;

use crate::{Key, engine::hashed_table::HashedTable, options::QueuePolicy, random::Random};

/// A hold that begins this soon after a release continues the streak. After a longer pause, other processes had
/// the time to get the lock.
const IN_A_ROW: Duration = Duration::from_millis(2);

/// For how long the times of the last holds are remembered after a release.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many of the last holds count.
const COUNTED: u8 = 8;

/// The fewest holds to estimate by. With fewer, a single long hold would mislead.
const ENOUGH_TO_EXPECT: u8 = 3;

/// The past of keys for which nobody waits. A key that is forgotten starts a new streak, which costs other processes one
/// turn, and has no estimate of its wait at first.
///
/// Streaks are remembered because a process that always comes back at once would keep all others out.
#[derive(Debug)]
pub(super) struct Recent(HashedTable<Released>);

#[derive(Debug)]
struct Released {
    past: Past,
    /// When the last turn ended.
    at: Timestamp,
}

impl Default for Released {
    fn default() -> Self {
        Self {
            past: Past::default(),
            at: Timestamp::ZERO,
        }
    }
}

/// The history of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// Since when holds follow each other within this process while other processes wait.
    streak: Option<Timestamp>,
    holds: HoldTimes,
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

    /// Begins a turn with a key that nobody had or wanted. Returns whether to let other processes go first.
    pub(super) fn begin_turn(&mut self, key: &Key, now: Timestamp, policy: &QueuePolicy) -> bool {
        let Some(Released { past, at }) = self.0.get_mut(key) else {
            return false;
        };
        let pause = now.saturating_duration_since(*at);
        if pause >= REMEMBERED {
            past.holds = HoldTimes::default();
        }
        let streak = past.streak.filter(|_| pause < IN_A_ROW);
        past.streak = streak.filter(|since| is_short(*since, now, policy));
        streak.is_some() && past.streak.is_none() && !policy.wait.is_zero()
    }

    /// Ends a turn for which nobody has waited. Returns whether to let other processes go first.
    pub(super) fn end_turn(
        &mut self,
        key: &Key,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> bool {
        if held.is_none() && self.0.get_mut(key).is_none() {
            return false;
        }
        let released = self.0.get_or_default(key);
        released.at = now;
        released.past.end_turn(now, held, policy, false)
    }

    /// Returns the past of a key that has a turn.
    pub(super) fn get(&mut self, key: &Key) -> Option<&Past> {
        self.0.get_mut(key).map(|released| &released.past)
    }

    /// Removes it.
    pub(super) fn take(&mut self, key: &Key) -> Past {
        let released = self.0.remove(key);
        released.map(|released| released.past).unwrap_or_default()
    }
}

impl Past {
    /// Ends a turn that has held the lock since `held`, if at all. Returns whether to let other processes go first.
    pub(super) fn end_turn(
        &mut self,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
        others_wait: bool,
    ) -> bool {
        let Some(held) = held else {
            // Another process may have had the lock meanwhile.
            self.streak = None;
            return false;
        };
        self.note_hold(held, now);
        let next_backs_off = !self.may_go_on(held, now, policy);
        if next_backs_off && others_wait {
            self.streak = None;
        }
        next_backs_off
    }

    /// Notes a hold that ends now with a release or a handover.
    pub(super) fn note_hold(&mut self, held: Timestamp, now: Timestamp) {
        self.streak.get_or_insert(held);
        self.holds.note(now.saturating_duration_since(held));
    }

    /// Returns whether the holder since `held` may hand the lock over.
    pub(super) fn may_go_on(
        &mut self,
        held: Timestamp,
        now: Timestamp,
        policy: &QueuePolicy,
    ) -> bool {
        is_short(*self.streak.get_or_insert(held), now, policy)
    }

    /// Returns how long a hold takes, if there were enough of them.
    pub(super) fn usual_hold(&self) -> Option<Duration> {
        self.holds.median()
    }
}

/// Returns whether a streak may go on.
fn is_short(since: Timestamp, now: Timestamp, policy: &QueuePolicy) -> bool {
    now.saturating_duration_since(since) < policy.streak
}

/// How long the last holds of a lock took, in whole microseconds.
///
/// They are only a guess at the next holds: the median is what to expect.
#[derive(Clone, Copy, Debug, Default)]
struct HoldTimes {
    /// The newest overwrites the oldest.
    micros: [u32; COUNTED as usize],
    counted: u8,
    next: u8,
}

impl HoldTimes {
    fn note(&mut self, hold: Duration) {
        self.micros[usize::from(self.next)] = u32::try_from(hold.as_micros()).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % COUNTED;
        self.counted = (self.counted + 1).min(COUNTED);
    }

    /// Returns the median, or `None` of fewer than three holds.
    fn median(&self) -> Option<Duration> {
        let mut sorted = self.micros;
        let sorted = &mut sorted[..self.counted.into()];
        sorted.sort_unstable();
        let middle = sorted.get(usize::from(self.counted.checked_sub(1)? / 2))?;
        (self.counted >= ENOUGH_TO_EXPECT).then(|| micros(*middle))
    }

    fn is_empty(&self) -> bool {
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
        let streak = Some(release);
        let none = HoldTimes::default();
        let mut holds = none;
        holds.note(Duration::from_millis(1));
        let key = Key::new("k").unwrap();
        let policy = QueuePolicy {
            hands_over: true,
            streak: REMEMBERED,
            poller_share: 0,
            max_waiters_per_key: 1,
            wait: REMEMBERED,
        };
        let known_after = |pause, streak, holds| {
            let mut recent = Recent::new(&Random::system());
            recent.note(&key, Past { streak, holds }, release);
            assert!(!recent.begin_turn(&key, release.saturating_add(pause), &policy));
            let known = recent.take(&key);
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
