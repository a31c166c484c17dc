//! How a process that uses a lock without interruption lets other processes have theirs.

use std::time::Duration;

use redlock_core::{Others, Pause, Timestamp, Ttl};

/// The length of pauses for clients that probe often: ours, where no server notifies them. It is longer than
/// their delay after they have missed a few openings.
const SHORT: Duration = Duration::from_millis(8);

/// The length of pauses for clients that probe rarely: about the delay of the usual libraries.
const LONG: Duration = Duration::from_millis(160);

/// The part of the share that goes to short pauses, in percent.
const SHORT_PART: u64 = 70;

/// How many times longer than usual a turn becomes at most while no other client comes.
const MAX_LENGTHENING: u32 = 5;

/// The length of pauses for clients that are notified, so that all of them come first: some round trips, and
/// less than a turn.
const MOMENT: Duration = Duration::from_millis(2);

/// By how many powers of two pauses become rarer at most while no client uses them.
const MAX_RARITY: u32 = 2;

/// A longer turn counts as this long. Between turns that are far apart, the lock was not busy.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// A turn is not lengthened beyond this, and not at all if it is longer already. A lone process gains little
/// by longer turns, and a process that comes rarely has to wait for their end.
const LONGEST_LENGTHENED: Duration = Duration::from_millis(100);

/// The fewest other clients that a process reckons with.
const FEWEST_COMPETITORS: u32 = 3;

/// The most of them. For each, it probes the free lock once more before it tries.
const MOST_COMPETITORS: u32 = 8;

/// The length of the turns of a process: the usual one, and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TurnLength {
    pub(crate) usual: Duration,
    longest: Duration,
}

impl TurnLength {
    /// Creates the length of turns that usually last for `usual`, with a lock whose keys live for `ttl`.
    ///
    /// No turn is longer than half of the ttl, so that the next holder has time to work, and renewal has
    /// time to fail and be tried again.
    pub(crate) fn new(usual: Duration, ttl: Ttl) -> Self {
        let half = ttl.as_duration() / 2;
        let usual = usual.min(half);
        let lengthened = usual
            .saturating_mul(MAX_LENGTHENING)
            .min(LONGEST_LENGTHENED);
        Self {
            usual,
            longest: lengthened.max(usual).min(half),
        }
    }
}

/// The turns of a process that uses one lock without interruption, among other processes.
///
/// A process has the lock for a while, [ends its turn](Self::end), backs off, and [starts the next
/// turn](Self::start). Clients that are notified when the lock is free need no more than a moment. Clients
/// that poll need pauses as long as their delays. The default is a process that has its first turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Turns {
    /// When this turn began, or the last one ended. `None` for the first turn.
    since: Option<Timestamp>,
    short: Allowance,
    long: Allowance,
    /// After how many turns in a row no other client came.
    unused: u32,
    competitors: Competitors,
    last: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Kind {
    /// No pause, because no other client came after the last turns.
    None,
    /// For clients that are notified when the lock is free.
    #[default]
    Moment,
    Short,
    Long,
}

impl Kind {
    const fn others(self) -> Others {
        match self {
            Self::None => Others::None,
            Self::Moment => Others::Notified,
            Self::Short | Self::Long => Others::Polling,
        }
    }
}

/// The time that was saved for pauses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Allowance {
    saved: Duration,
    /// How many pauses in a row no other client used.
    unused: u32,
}

impl Turns {
    /// Returns the length of the next turn. It is longer than usual if no other client came after the last
    /// turns.
    pub(crate) fn length(&self, turn: TurnLength) -> Duration {
        let times = self.unused.saturating_add(1).min(MAX_LENGTHENING);
        turn.usual.saturating_mul(times).min(turn.longest)
    }

    /// Ends a turn. Returns the pause before the next one, or `None` if the turn may go on. `share` is the part of the time
    /// for which the lock is left free for clients that poll, in percent.
    pub(crate) fn end(&mut self, now: Timestamp, turn: TurnLength, share: u8) -> Option<Pause> {
        let lasted = self.since.map(|since| now.saturating_duration_since(since));
        // Nothing is known of the beginning of the first turn, so it is over when its driver says so.
        let lasted = lasted.unwrap_or_else(|| self.length(turn));
        if lasted < self.length(turn) {
            return None;
        }
        self.since = Some(now);
        let lasted = lasted.min(LONGEST_TURN);
        let share = u64::from(share);
        self.short.save(lasted, share * SHORT_PART);
        self.long.save(lasted, share * (100 - SHORT_PART));
        let (kind, time) = if self.long.spend(LONG) {
            (Kind::Long, LONG)
        } else if self.short.spend(SHORT) {
            (Kind::Short, SHORT)
        } else if self.unused == 0 {
            (Kind::Moment, MOMENT)
        } else {
            (Kind::None, Duration::ZERO)
        };
        self.last = kind;
        let pause = Pause::new(now.saturating_add(time), kind.others());
        Some(pause.for_competitors(self.competitors.estimate()))
    }

    /// Starts the turn after a pause. `was_contended` says whether another client came in the pause, and `missed` how often
    /// another one was faster; see [`Lease::was_contended`](redlock_core::Lease::was_contended) and
    /// [`Lease::missed`](redlock_core::Lease::missed).
    pub(crate) fn start(&mut self, now: Timestamp, was_contended: bool, missed: u32) {
        self.competitors.note(missed);
        let count = |unused: &mut u32| {
            *unused = if was_contended {
                0
            } else {
                unused.saturating_add(1)
            };
        };
        match self.last {
            Kind::None | Kind::Moment => {}
            Kind::Short => count(&mut self.short.unused),
            Kind::Long => count(&mut self.long.unused),
        }
        count(&mut self.unused);
        self.since = Some(now);
    }
}

/// An estimate of how many other clients want the lock: the mean number of turns that they had between two turns of this
/// process, over about eight of these, and one more.
///
/// If all clients have equally many turns, the mean is their number, in whatever order they come. A client whose estimate
/// is too low tries too early, meets those that have waited for longer, and loses to some of them. So its estimate grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Competitors {
    sixteenths: u32,
}

impl Default for Competitors {
    fn default() -> Self {
        Self {
            sixteenths: 16 * (FEWEST_COMPETITORS - 1),
        }
    }
}

impl Competitors {
    fn note(&mut self, missed: u32) {
        // One long wait is no crowd.
        let last = 16 * missed.min(2 * MOST_COMPETITORS);
        self.sixteenths = (7 * self.sixteenths + last + 4) / 8;
    }

    fn estimate(self) -> u32 {
        let mean = (self.sixteenths + 8) / 16;
        (mean + 1).clamp(FEWEST_COMPETITORS, MOST_COMPETITORS)
    }
}

impl Allowance {
    /// Saves a part of a time, in hundredths of a percent. It saves less if the last pauses were not used.
    fn save(&mut self, time: Duration, part: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let nanos = nanos.saturating_mul(part) / 10_000;
        let nanos = nanos >> self.unused.min(MAX_RARITY);
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
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const DEFAULT_SHARE: u8 = 4;

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
                if let Some(pause) = minute.turn(percent, is_used)
                    && pause.others == Others::Polling
                {
                    let time = pause.until.saturating_duration_since(minute.now);
                    let without = minute.now.saturating_duration_since(last);
                    minute.pauses.push(time);
                    minute.longest_without = minute.longest_without.max(without);
                    minute.now = pause.until;
                    last = minute.now;
                }
                minute.turns.start(minute.now, is_used, 0);
            }
            minute
        }

        fn turn(&mut self, share: u8, is_used: bool) -> Option<Pause> {
            let length = self.turns.length(turn(TURN));
            self.lengths.push(length);
            self.now = self.now.saturating_add(length);
            assert!(is_used || length <= TURN * MAX_LENGTHENING);
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
    }

    #[test]
    fn short_pauses_come_several_times_a_second_and_long_ones_now_and_then() {
        let minute = Minute::of(4, true);
        assert!(
            minute.longest_without < MS(400),
            "{:?}",
            minute.longest_without
        );
        let long = minute.pauses.iter().filter(|pause| **pause == LONG).count();
        assert!((4..=5).contains(&long), "{long}");
    }

    #[test]
    fn turns_are_longer_and_pauses_rarer_while_no_other_client_comes() {
        let minute = Minute::of(4, false);
        assert_eq!(minute.lengths.last(), Some(&(TURN * MAX_LENGTHENING)));
        assert!(minute.paused() < MS(900), "{:?}", minute.paused());
        assert!(
            minute.longest_without < MS(1400),
            "{:?}",
            minute.longest_without
        );
        let mut turns = minute.turns;
        turns.start(minute.now, true, 0);
        assert_eq!(turns.length(turn(TURN)), TURN, "somebody came");
    }

    #[test]
    fn a_turn_that_is_not_over_goes_on() {
        let mut turns = Turns::default();
        turns.start(Timestamp::ZERO, true, 0);
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        assert_eq!(turns.end(at(19), turn(TURN), DEFAULT_SHARE), None);
        let pause = turns.end(at(20), turn(TURN), DEFAULT_SHARE).unwrap();
        assert_eq!((pause.others, pause.until), (Others::Notified, at(22)));
        turns.start(at(22), false, 0);
        let none = turns.end(at(200), turn(TURN), 0).unwrap();
        assert_eq!((none.others, none.until), (Others::None, at(200)));
    }

    #[test]
    fn a_long_turn_is_not_lengthened_and_no_turn_exceeds_half_of_the_ttl() {
        let mut turns = Turns::default();
        let longest = |turns: &Turns, usual, ttl| {
            turns.length(TurnLength::new(MS(usual), Ttl::new(MS(ttl)).unwrap()))
        };
        assert_eq!(longest(&turns, 5000, 4000), MS(2000));
        for _ in 0..9 {
            turns.start(Timestamp::ZERO, false, 0);
        }
        let cases = [(20, 10_000), (80, 10_000), (1000, 10_000), (60_000, 10_000)];
        let lengths = cases.map(|(usual, ttl)| longest(&turns, usual, ttl));
        assert_eq!(lengths, [MS(100), MS(100), MS(1000), MS(5000)]);
        assert_eq!(longest(&turns, 20, 100), MS(50));
        turns.unused = u32::MAX;
        assert_eq!(longest(&turns, 20, 10_000), MS(100), "nothing overflows");
    }

    #[test]
    fn the_other_clients_are_counted_by_their_turns() {
        let competitors_after = |missed: [u32; 2]| {
            let mut turns = Turns::default();
            for count in missed.into_iter().cycle().take(40) {
                turns.start(Timestamp::ZERO, true, count);
            }
            turns
                .end(Timestamp::MAX, turn(TURN), 0)
                .unwrap()
                .competitors
        };
        assert_eq!(Turns::default().competitors.estimate(), FEWEST_COMPETITORS);
        assert_eq!([[0, 0], [3, 3], [5, 5]].map(competitors_after), [3, 4, 6]);
        assert_eq!(competitors_after([2, 8]), 6, "whatever the order");
        assert_eq!(competitors_after([u32::MAX; 2]), MOST_COMPETITORS);
    }
}
