use core::time::Duration;

use crate::{Timestamp, Ttl, timestamp::saturating_nanos};

/// The pauses for clients that look often: ours, where no server tells them that the lock is free. Longer
/// than their delay once they have missed it a few times.
const SHORT: Duration = Duration::from_millis(8);

/// The pauses for clients that look seldom: about as long as the delays of the usual libraries.
const LONG: Duration = Duration::from_millis(160);

/// The part of the share that goes to short pauses, in percent.
const SHORT_PART: u64 = 70;

/// How many times longer than usual a turn is at most, where nobody was there after the last ones.
const LONGEST: u32 = 5;

/// How long to stay away from others that are told when the lock is free, so that all of them come first:
/// some round trips, and less than a turn.
const AWAY: Duration = Duration::from_millis(2);

/// How many times rarer pauses become where nobody uses them, as a power of two.
const MOST_RARE: u32 = 2;

/// A turn counts as no longer than this: between turns that are far apart, the lock was not busy.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// The part of the time for which a process leaves a busy lock free, for clients that poll.
///
/// A client that polls every `d` gets the lock about once in `d` divided by this part, however the time
/// is divided into pauses: with four percent, a client that polls every 100 ms waits for 2.5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollerShare {
    percent: u8,
}

impl PollerShare {
    /// No pauses.
    pub const NONE: Self = Self { percent: 0 };

    /// The largest: half of the time.
    pub const MAX: Self = Self { percent: 50 };

    /// Creates a share of so many percent. More than 50 counts as 50.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        if percent < Self::MAX.percent {
            Self { percent }
        } else {
            Self::MAX
        }
    }
}

impl Default for PollerShare {
    /// Four percent: with the time between two turns, the lock stays busy for 95 % of the time.
    fn default() -> Self {
        Self { percent: 4 }
    }
}

/// A turn is not lengthened beyond this, nor at all if it is longer already: a lone process gains little
/// by it, and a process that comes rarely has to wait for it.
const LONGEST_LENGTHENED: Duration = Duration::from_millis(100);

/// How long the turns of a process are: the usual one, and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TurnLength {
    usual: Duration,
    longest: Duration,
}

impl TurnLength {
    /// Creates the length of turns that usually last for `usual`, at a lock whose keys live for `ttl`.
    ///
    /// No turn is longer than half of the ttl, so that the next holder has time to work, and renewal has
    /// time to fail and be tried again.
    #[must_use]
    pub fn new(usual: Duration, ttl: Ttl) -> Self {
        let half = ttl.as_duration() / 2;
        let usual = usual.min(half);
        let lengthened = usual.saturating_mul(LONGEST).min(LONGEST_LENGTHENED);
        Self {
            usual,
            longest: lengthened.max(usual).min(half),
        }
    }

    /// Returns how long a turn usually is.
    #[must_use]
    pub const fn usual(self) -> Duration {
        self.usual
    }
}

/// How a process takes turns with others at one lock that it uses without interruption.
///
/// A process has the lock for a while, [ends its turn](Self::end), lets others go first, and [starts the
/// next](Self::start). Clients that are told when the lock is free need no more than a moment; clients that
/// poll need pauses as long as their delays. The default is a process that has its first turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turns {
    /// When this turn began, if that is known.
    since: Option<Timestamp>,
    short: Allowance,
    long: Allowance,
    /// How many turns in a row nobody else was there after.
    unused: u32,
    last: Kind,
}

/// How a process lets others go first between two of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pause {
    pub(crate) kind: Kind,
    pub(crate) until: Timestamp,
}

impl Pause {
    /// Returns whether there is more time left after the pause than it takes: it must not cost the lock.
    pub(crate) fn fits(&self, now: Timestamp, deadline: Timestamp) -> bool {
        let time = self.until.saturating_duration_since(now);
        self.until.saturating_add(time) < deadline
    }

    /// Returns whether it is for clients that come only by and by, so that they are to be looked for.
    pub(crate) fn is_for_pollers(&self) -> bool {
        self.kind != Kind::Moment
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// For others that are told that the lock is free.
    #[default]
    Moment,
    Short,
    Long,
}

/// Time that was saved for pauses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Allowance {
    saved: Duration,
    /// How many pauses in a row were not used by anybody.
    unused: u32,
}

impl Turns {
    /// Returns how long the next turn is. It is longer than usual while no other client came after the
    /// last turns.
    #[must_use]
    pub fn length(&self, turn: TurnLength) -> Duration {
        let times = self.unused.saturating_add(1).min(LONGEST);
        turn.usual.saturating_mul(times).min(turn.longest)
    }

    /// Ends a turn. Returns how to let others go first, or `None` if the turn may go on.
    pub fn end(&mut self, now: Timestamp, turn: TurnLength, share: PollerShare) -> Option<Pause> {
        let lasted = self.since.map(|since| now.saturating_duration_since(since));
        // A turn of which nobody knows when it began is over when its driver says so.
        let lasted = lasted.unwrap_or_else(|| self.length(turn));
        if lasted < self.length(turn) {
            return None;
        }
        self.since = Some(now);
        let lasted = lasted.min(LONGEST_TURN);
        let share = u64::from(share.percent);
        self.short.save(lasted, share * SHORT_PART);
        self.long.save(lasted, share * (100 - SHORT_PART));
        let (kind, time) = if self.long.spend(LONG) {
            (Kind::Long, LONG)
        } else if self.short.spend(SHORT) {
            (Kind::Short, SHORT)
        } else if self.unused == 0 {
            (Kind::Moment, AWAY)
        } else {
            (Kind::Moment, Duration::ZERO)
        };
        self.last = kind;
        let until = now.saturating_add(time);
        Some(Pause { kind, until })
    }

    /// Starts the turn after a pause, in which another client [was there](crate::Lease::was_contended) or
    /// not.
    pub fn start(&mut self, now: Timestamp, was_contended: bool) {
        let count = |unused: &mut u32| {
            *unused = if was_contended {
                0
            } else {
                unused.saturating_add(1)
            };
        };
        match self.last {
            Kind::Moment => {}
            Kind::Short => count(&mut self.short.unused),
            Kind::Long => count(&mut self.long.unused),
        }
        count(&mut self.unused);
        self.since = Some(now);
    }
}

impl Allowance {
    /// Saves a part of a time, in hundredths of a percent; less, where nobody uses it.
    fn save(&mut self, time: Duration, part: u64) {
        let nanos = saturating_nanos(time).saturating_mul(part) / 10_000;
        let nanos = nanos >> self.unused.min(MOST_RARE);
        self.saved = self.saved.saturating_add(Duration::from_nanos(nanos));
    }

    fn spend(&mut self, pause: Duration) -> bool {
        let suffices = self.saved >= pause;
        if suffices {
            self.saved = Duration::ZERO;
        }
        suffices
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const TURN: Duration = Duration::from_millis(20);

    fn turn(usual: Duration) -> TurnLength {
        TurnLength::new(usual, Ttl::new(MS(10_000)).unwrap())
    }

    /// A minute of turns of 20 ms.
    struct Minute {
        turns: Turns,
        now: Timestamp,
        /// How long turns lasted, and pauses for clients that poll.
        lengths: Vec<Duration>,
        pauses: Vec<Duration>,
        /// The longest time without a pause for clients that poll.
        longest_without: Duration,
    }

    impl Minute {
        fn of(percent: u8, is_used: bool) -> Self {
            let mut minute = Self {
                turns: Turns::default(),
                now: Timestamp::ZERO,
                lengths: Vec::new(),
                pauses: Vec::new(),
                longest_without: Duration::ZERO,
            };
            let mut last = Timestamp::ZERO;
            while minute.now < Timestamp::ZERO.saturating_add(MS(60_000)) {
                if let Some(pause) = minute.turn(PollerShare::percent(percent), is_used)
                    && pause.is_for_pollers()
                {
                    let time = pause.until.saturating_duration_since(minute.now);
                    let without = minute.now.saturating_duration_since(last);
                    minute.pauses.push(time);
                    minute.longest_without = minute.longest_without.max(without);
                    minute.now = pause.until;
                    last = minute.now;
                }
                minute.turns.start(minute.now, is_used);
            }
            minute
        }

        fn turn(&mut self, share: PollerShare, is_used: bool) -> Option<Pause> {
            let length = self.turns.length(turn(TURN));
            self.lengths.push(length);
            self.now = self.now.saturating_add(length);
            assert!(is_used || length <= TURN * LONGEST);
            self.turns.end(self.now, turn(TURN), share)
        }

        fn paused(&self) -> Duration {
            self.pauses.iter().sum()
        }
    }

    #[test]
    fn pauses_take_their_share_and_no_more() {
        for percent in [1, 4, 20, 50] {
            let paused = Minute::of(percent, true).paused();
            let share = MS(600) * u32::from(percent);
            assert!(paused <= share, "{percent}: {paused:?}");
            assert!(paused >= share / 2, "{percent}: {paused:?}");
        }
        assert!(Minute::of(0, true).pauses.is_empty());
        assert_eq!(PollerShare::percent(200), PollerShare::MAX);
    }

    #[test]
    fn short_pauses_come_several_times_a_second_and_long_ones_now_and_then() {
        let minute = Minute::of(4, true);
        assert!(
            minute.longest_without < MS(400),
            "{:?}",
            minute.longest_without
        );
        let long = minute.pauses.iter().filter(|it| **it == LONG).count();
        assert!((4..=5).contains(&long), "{long}");
    }

    #[test]
    fn where_nobody_comes_turns_are_longer_and_pauses_rarer() {
        let minute = Minute::of(4, false);
        assert_eq!(minute.lengths.last(), Some(&(TURN * LONGEST)));
        assert!(minute.paused() < MS(900), "{:?}", minute.paused());
        assert!(
            minute.longest_without < MS(1400),
            "{:?}",
            minute.longest_without
        );
        let mut turns = minute.turns;
        turns.start(minute.now, true);
        assert_eq!(turns.length(turn(TURN)), TURN, "somebody came");
    }

    #[test]
    fn a_turn_that_is_not_over_goes_on() {
        let mut turns = Turns::default();
        turns.start(Timestamp::ZERO, true);
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        assert_eq!(turns.end(at(19), turn(TURN), PollerShare::default()), None);
        let pause = turns
            .end(at(20), turn(TURN), PollerShare::default())
            .unwrap();
        assert_eq!((pause.kind, pause.until), (Kind::Moment, at(22)));
        assert!(pause.fits(at(20), at(25)) && !pause.fits(at(20), at(24)));
    }

    #[test]
    fn a_long_turn_is_not_lengthened_and_no_turn_exceeds_half_of_the_ttl() {
        let mut turns = Turns::default();
        let longest = |turns: &Turns, usual, ttl| {
            turns.length(TurnLength::new(MS(usual), Ttl::new(MS(ttl)).unwrap()))
        };
        assert_eq!(longest(&turns, 5000, 4000), MS(2000));
        for _ in 0..9 {
            turns.start(Timestamp::ZERO, false);
        }
        let cases = [(20, 10_000), (80, 10_000), (1000, 10_000), (60_000, 10_000)];
        let lengths = cases.map(|(usual, ttl)| longest(&turns, usual, ttl));
        assert_eq!(lengths, [MS(100), MS(100), MS(1000), MS(5000)]);
        assert_eq!(longest(&turns, 20, 100), MS(50));
        turns.unused = u32::MAX;
        assert_eq!(longest(&turns, 20, 10_000), MS(100), "nothing overflows");
    }
}
