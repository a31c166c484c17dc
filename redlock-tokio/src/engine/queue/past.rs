//! The streaks of a process among others, and what is known of earlier holds of a key.
//!
//! While tasks of its own wait, a process hands its lock over from one to the next. That is a [`Streak`]. It serves
//! those that waited when it began. It lasts at least [ten times](ATTEMPTS) as long as it took to get the lock, but never
//! longer than `handover_for`. Near its end the holder asks the node of the line whether others wait. If none do,
//! another streak begins without a release. Otherwise the lock is released, and the next task waits at the end of the
//! line. A task that wants the lock again before others could react to its release waits there, too.
//!
//! A process that has stood in line behind others assumes that they wait behind it again, and has a
//! [shorter streak](ATTEMPTS_BESIDE_OTHERS).
//!
//! Clients that stand in no line poll: other libraries, and requests with a limit of attempts. A busy process leaves the lock
//! [free](POLLER_PAUSE) for them now and then, so that the free time is the `poller_share` of the time for which it held the lock.

use std::time::Duration;

use redlock_core::Timestamp;

use super::Arrival;
use crate::{
    Key,
    engine::{hashed_table::HashedTable, micros::Micros},
    options::QueuePolicy,
    random::Random,
};

/// A streak lasts at least so many times as long as it took to get the lock. So somebody has it most of the time.
const ATTEMPTS: u32 = 10;

/// The same if other processes wait: the next of the line is called, looks at the key, and then makes its attempt. A
/// streak that is shorter than these three round trips would leave the lock free for some of them.
const ATTEMPTS_BESIDE_OTHERS: u32 = 3;

/// For how long a lock is left free at a time for clients that poll: some of them come in it.
const POLLER_PAUSE: Duration = Duration::from_millis(8);

/// For how long the times of the last holds are remembered after a release.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many of the last holds count.
const COUNTED: u8 = 8;

/// The fewest holds to estimate by. With fewer, a single long hold would mislead.
const ENOUGH_TO_EXPECT: u8 = 3;

/// The past of keys for which nobody waits. A key that is forgotten starts a new streak, for which other
/// processes wait, and has no estimate of its wait at first.
///
/// Streaks are remembered because a process that always comes back at once would keep all others out.
#[derive(Clone)]
pub(super) struct Recent(HashedTable<Released>);

#[derive(Clone, Debug)]
struct Released {
    past: Past,
    /// When the last turn ended.
    at: Timestamp,
}

/// The history of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    streak: Option<Streak>,
    holds: HoldTimes,
    /// The time that is owed to clients that poll, and stand in no line.
    owed: Micros,
}

/// Holds that follow each other within this process, while other processes may wait.
#[derive(Clone, Copy, Debug)]
struct Streak {
    since: Timestamp,
    /// The last of the waiters at its beginning, all of which it serves: the lower half of its arrival.
    last: u32,
    /// How long it took to get the lock from the nodes. Others had the time to get it if it was free for as long.
    attempt: Micros,
    /// Whether other processes were seen in the line.
    others_wait: bool,
}

impl Streak {
    fn new(since: Timestamp, last: Option<Arrival>, policy: &QueuePolicy) -> Self {
        Self {
            since,
            last: last.map_or(0, low),
            attempt: policy.attempt.into(),
            others_wait: policy.others_wait,
        }
    }

    /// Returns whether it goes on for this waiter, or for a request that comes now.
    fn goes_on(&self, now: Timestamp, next: Option<Arrival>, policy: &QueuePolicy) -> bool {
        let lasted = now.saturating_duration_since(self.since);
        // There are fewer waiters than half of all lower halves.
        let was_there = |next| self.last.wrapping_sub(low(next)) <= u32::MAX / 2;
        let was_there = next.is_some_and(was_there);
        lasted < policy.streak && (was_there || lasted < self.least())
    }

    /// Returns for how long after a release others had no time to get the lock.
    fn remembered(&self) -> Duration {
        if self.others_wait {
            // The next of the line is on its way.
            return self.least();
        }
        self.attempt.into()
    }

    fn least(&self) -> Duration {
        let attempts = if self.others_wait {
            ATTEMPTS_BESIDE_OTHERS
        } else {
            ATTEMPTS
        };
        Duration::from(self.attempt).saturating_mul(attempts)
    }
}

fn low(arrival: Arrival) -> u32 {
    arrival.number() as u32
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
        let streak = past.streak.filter(|it| pause <= it.remembered());
        past.streak = streak.filter(|streak| streak.goes_on(now, None, policy));
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
        let released = self.0.get_or_insert_with(key, |hash| Released {
            past: Past::new(hash),
            at: now,
        });
        released.at = now;
        released.past.end_turn(now, held, policy, None)
    }

    /// Returns the past of a key that has a turn.
    pub(super) fn get(&mut self, key: &Key) -> Option<&Past> {
        self.0.get_mut(key).map(|released| &released.past)
    }

    pub(super) fn take_pause(&mut self, key: &Key) -> Duration {
        let released = self.0.get_mut(key);
        released.map_or(Duration::ZERO, |it| it.past.take_pause())
    }

    /// Removes it.
    pub(super) fn take(&mut self, key: &Key) -> Past {
        let released = self.0.remove(key);
        released.map_or_else(|| Past::new(self.0.hash(key)), |released| released.past)
    }
}

impl Past {
    /// Begins the past of a key whose hash is another one in each process. So processes that alternate do not leave the
    /// key free one after the other.
    fn new(hash: u64) -> Self {
        let owed = Duration::from_micros(hash % POLLER_PAUSE.as_micros() as u64);
        Self {
            owed: owed.into(),
            ..Self::default()
        }
    }

    /// Ends a turn that has held the lock since `held`, if at all. `next` is the first waiter. Returns whether to let other
    /// processes go first.
    pub(super) fn end_turn(
        &mut self,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
        next: Option<Arrival>,
    ) -> bool {
        let Some(held) = held else {
            // Another process may have had the lock meanwhile.
            self.streak = None;
            return false;
        };
        self.note_hold(held, now, policy);
        let next_backs_off = !self.may_go_on(held, now, next, None, policy);
        if next_backs_off && next.is_some() {
            self.streak = None;
        }
        next_backs_off
    }

    /// Notes a hold that ends now with a release or a handover.
    pub(super) fn note_hold(&mut self, held: Timestamp, now: Timestamp, policy: &QueuePolicy) {
        let lasted = now.saturating_duration_since(held);
        self.holds.note(lasted);
        let owed = lasted.min(POLLER_PAUSE * 10) * u32::from(policy.poller_share) / 100;
        self.owed = (Duration::from(self.owed) + owed).min(POLLER_PAUSE).into();
    }

    /// Returns whether the holder since `held` may hand the lock over to the next waiter. `last` is the last waiter.
    pub(super) fn may_go_on(
        &mut self,
        held: Timestamp,
        now: Timestamp,
        next: Option<Arrival>,
        last: Option<Arrival>,
        policy: &QueuePolicy,
    ) -> bool {
        let new = || Streak::new(held, last, policy);
        let streak = self.streak.get_or_insert_with(new);
        streak.goes_on(now, next, policy)
    }

    /// Takes the time that is owed to clients that poll, if it is enough for one of them.
    pub(super) fn take_pause(&mut self) -> Duration {
        if !self.owes_pause() {
            return Duration::ZERO;
        }
        self.owed = Micros::ZERO;
        POLLER_PAUSE
    }

    pub(super) fn owes_pause(&self) -> bool {
        Duration::from(self.owed) >= POLLER_PAUSE
    }

    /// Returns whether half of the streak is over.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.streak.is_some_and(|streak| {
            let lasted = now.saturating_duration_since(streak.since);
            lasted >= streak.least() / 2
        })
    }

    /// Begins another streak: nobody else wants the lock.
    pub(super) fn renew(&mut self, now: Timestamp, last: Option<Arrival>, policy: &QueuePolicy) {
        self.streak = Some(Streak::new(now, last, policy));
    }

    /// Returns how long a hold takes, if there were enough of them.
    pub(super) fn usual_hold(&self) -> Option<Duration> {
        self.holds.median()
    }
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
    use crate::engine::queue::tests::POLICY;

    const NANO: Duration = Duration::from_nanos(1);
    const IN_A_ROW: Duration = Duration::from_millis(2);

    #[test]
    fn processes_that_share_a_key_leave_it_free_at_different_times() {
        let key = Key::new("k").unwrap();
        let owed = |_| Duration::from(Recent::new(&Random::system()).take(&key).owed);
        let mut owed: Vec<_> = (0..100).map(owed).collect();
        owed.sort_unstable();
        assert!(
            owed[0] < POLLER_PAUSE / 4 && owed[99] > POLLER_PAUSE * 3 / 4,
            "{owed:?}"
        );
        assert!(owed[99] < POLLER_PAUSE, "it has held the key, too");
    }

    #[test]
    fn a_streak_is_remembered_for_an_attempt_and_hold_times_for_a_minute() {
        let release = Timestamp::ZERO;
        let streak = Some(Streak {
            since: release,
            last: 0,
            attempt: IN_A_ROW.into(),
            others_wait: false,
        });
        let none = HoldTimes::default();
        let mut holds = none;
        holds.note(Duration::from_millis(1));
        let key = Key::new("k").unwrap();
        let policy = QueuePolicy {
            streak: REMEMBERED,
            attempt: IN_A_ROW,
            ..POLICY
        };
        let known_after = |pause, streak, holds| {
            let mut recent = Recent::new(&Random::system());
            let owed = Micros::ZERO;
            let past = Past {
                streak,
                holds,
                owed,
            };
            recent.note(&key, past, release);
            assert!(!recent.begin_turn(&key, release.saturating_add(pause), &policy));
            let known = recent.take(&key);
            (known.streak.is_some(), !known.holds.is_empty())
        };
        for (pause, knows_streak, knows_holds) in [
            (Duration::ZERO, true, true),
            (IN_A_ROW, true, true),
            (IN_A_ROW + NANO, false, true),
            (REMEMBERED - NANO, false, true),
            (REMEMBERED, false, false),
        ] {
            let known = known_after(pause, streak, holds);
            assert_eq!(known, (knows_streak, knows_holds));
            assert_eq!(known_after(pause, streak, none), (knows_streak, false));
            assert_eq!(known_after(pause, None, holds), (false, knows_holds));
        }
    }
}
