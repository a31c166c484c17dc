//! The rule of the line: when a process that waits for a key may try to get it.
//!
//! The processes that wait for a key stand in a line on one node. Only the first of them watches the key and tries, and a
//! process that leaves the line calls the next. The line is advice: who holds a lock is decided by the votes of a majority.
//! So a line that is lost, doubled or out of date costs time and never safety.
//!
//! The node removes a process that is dead, stopped or cut off, because it does not [beat](crate::node::LineAction::Beat) any
//! more. If that was a mistake, the process learns it from its next beat, and takes its place again, with its number. If all
//! else fails, a process that sees the key lie free twice tries by itself.

use std::time::Duration;

use redlock_core::Timestamp;

use crate::node::Standing;

/// How long a process waits for its call before it looks by itself. The time doubles with each look. One that may try asks
/// after this time whether it is the first: others may have come back since.
pub(crate) const FIRST_CHECK: Duration = Duration::from_secs(1);

/// The longest time between two looks.
pub(crate) const LONGEST_CHECK: Duration = Duration::from_secs(10);

/// After so many looks in a row that find the key free, the process tries, whatever the node of the line says.
const LOOKS_TO_TRY: u8 = 2;

/// After so many requests in a row that the node of the line does not answer, the process tries without a line.
const FAILURES: u8 = 3;

/// What the driver of a place has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Ask the node of the line for the place, which is at the end unless the process has one, or had one with this
    /// [number](Place::number).
    Join,
    /// Look whether the key is free on a majority of the nodes, and say so by [`Place::handle_look`].
    Look,
}

/// A place in the line of a key.
///
/// ```text
///            answer: first
///  Joining -----------------> Active
///    |  ^                     |   ^
///    |  | asks again          |   | called
///    v  |                     v   |
///  Behind or Looking <------------+
///                 answer: not the first
/// ```
///
/// A process that tries only as the first asks again when it is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    state: State,
    /// How often to ask for the place if the node does not call.
    polls: Duration,
    /// How often to ask while it may try.
    refresh: Duration,
    /// When to look next, and the time between that look and the one after it.
    look_at: Timestamp,
    interval: Duration,
    /// How many looks in a row have found the key free.
    free_looks: u8,
    /// How many requests in a row were not answered.
    failures: u8,
    /// What the node has said last.
    standing: Option<Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The node has not answered yet. `called` is whether a call has come meanwhile, which may be newer than the answer.
    Joining {
        called: bool,
    },
    Behind {
        ask_at: Timestamp,
    },
    Looking,
    /// May try. `called` is whether a call has come since it asked last, which may be newer than the answer.
    Active {
        ask_at: Timestamp,
        called: bool,
    },
}

impl Place {
    /// Takes a place in a line. If the node does not call, the process asks each `polls` for its place. A process that may try
    /// asks each `refresh`.
    pub(crate) fn join(polls: Duration, refresh: Duration) -> (Self, Step) {
        let place = Self {
            state: State::Joining { called: false },
            polls,
            refresh,
            look_at: Timestamp::ZERO,
            interval: FIRST_CHECK,
            free_looks: 0,
            failures: 0,
            standing: None,
        };
        (place, Step::Join)
    }

    /// Returns the number by which the process gets its place back if the node has lost it.
    pub(crate) fn number(&self) -> Option<u64> {
        self.standing.map(|it| it.number)
    }

    /// Returns whether the node does not call this process, so that it has to ask.
    pub(crate) fn polls(&self) -> bool {
        self.standing.is_some_and(|it| !it.is_called)
    }

    /// Takes the answer of the node to a request to join, and whether the process may try there.
    pub(crate) fn handle_standing(
        &mut self,
        now: Timestamp,
        may_try: bool,
        standing: Standing,
    ) -> Option<Step> {
        self.failures = 0;
        self.standing = Some(standing);
        match self.state {
            State::Active { .. } if may_try => {}
            _ if may_try => self.activate(now),
            State::Joining { called: true } | State::Active { called: true, .. } => {
                return Some(self.ask());
            }
            State::Joining { called: false } => self.fall_behind(now),
            State::Active { .. } => {
                self.interval = FIRST_CHECK;
                self.fall_behind(now);
            }
            _ => {}
        }
        None
    }

    /// Takes the news that the node has not answered, or that the connection to it is gone. The process keeps its place for a
    /// while, because the node may be back in a moment. Without a place it tries by itself, and asks for one again soon: those
    /// in the line would pass it again and again.
    pub(crate) fn handle_failure(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let soon = now.saturating_add(FIRST_CHECK);
        match &mut self.state {
            State::Looking => {}
            State::Active { ask_at, .. } => *ask_at = soon,
            _ if self.standing.is_none() || self.failures >= FAILURES => self.activate(now),
            State::Joining { .. } | State::Behind { .. } => {
                self.interval = FIRST_CHECK;
                self.look_at = self.look_at.max(soon);
                // Asked more often, it would soon count as one without a line.
                self.state = State::Behind { ask_at: soon };
            }
        }
    }

    /// Takes a call: a process has left the line, so that this one may try. An answer that is on its way may be older. Unless it
    /// `may_try`, the process tries only as the first, and asks whether it is.
    pub(crate) fn handle_call(&mut self, now: Timestamp, may_try: bool) -> Option<Step> {
        match &mut self.state {
            State::Joining { called } | State::Active { called, .. } => *called = true,
            State::Behind { .. } | State::Looking if !may_try => return Some(self.ask()),
            State::Behind { .. } | State::Looking => self.activate(now),
        }
        None
    }

    /// Takes the life that the node counts for the process now. It has removed the places of another one.
    pub(crate) fn handle_life(&mut self, life: Option<u64>) -> Option<Step> {
        let is_kept = self.standing.is_none_or(|it| Some(it.life) == life);
        (!is_kept).then(|| self.handle_connection()).flatten()
    }

    /// Takes the place over for another request of the process. Earlier requests are not answered any more.
    pub(crate) fn inherit(&mut self) -> Option<Step> {
        match self.state {
            State::Joining { .. } => Some(self.ask_anew()),
            // The node has not answered, and is asked once a second.
            State::Behind { .. } if self.failures > 0 => None,
            State::Active { .. } => None,
            State::Behind { .. } | State::Looking => Some(self.ask_anew()),
        }
    }

    /// Takes the news of a new connection to the node, which has called nobody on it, and may have forgotten the line.
    pub(crate) fn handle_connection(&mut self) -> Option<Step> {
        match &mut self.state {
            State::Joining { called } => {
                *called = true;
                None
            }
            State::Behind { .. } | State::Looking => Some(self.ask_anew()),
            State::Active { called, .. } => {
                *called = false;
                Some(Step::Join)
            }
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next.
    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        match self.state {
            State::Behind { ask_at } => Some(ask_at.min(self.look_at)),
            State::Active { ask_at, .. } => Some(ask_at),
            State::Joining { .. } | State::Looking => None,
        }
    }

    /// Looks whether the key lies free, since a call may be lost, or asks for the place.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) -> Option<Step> {
        match &mut self.state {
            State::Behind { .. } if self.look_at <= now => {
                self.state = State::Looking;
                Some(Step::Look)
            }
            State::Behind { ask_at } if *ask_at <= now => Some(self.ask()),
            State::Active { ask_at, called } if *ask_at <= now => {
                *called = false;
                *ask_at = now.saturating_add(self.refresh);
                Some(Step::Join)
            }
            _ => None,
        }
    }

    /// Takes what a look has found.
    pub(crate) fn handle_look(&mut self, now: Timestamp, is_free: bool) -> Option<Step> {
        if self.state != State::Looking {
            return None;
        }
        self.free_looks = if is_free { self.free_looks + 1 } else { 0 };
        if is_free {
            self.interval = FIRST_CHECK;
        }
        if self.free_looks >= LOOKS_TO_TRY {
            self.activate(now);
            return None;
        }
        Some(self.ask())
    }

    /// Returns whether the process may watch the key and try.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Active { .. })
    }

    fn activate(&mut self, now: Timestamp) {
        self.interval = FIRST_CHECK;
        self.free_looks = 0;
        let ask_at = now.saturating_add(FIRST_CHECK);
        self.state = State::Active {
            ask_at,
            called: false,
        };
    }

    fn fall_behind(&mut self, now: Timestamp) {
        if self.look_at <= now {
            self.look_at = now.saturating_add(self.interval);
            self.interval = (2 * self.interval).min(LONGEST_CHECK);
        }
        let ask_at = if self.polls() {
            now.saturating_add(self.polls)
        } else {
            self.look_at
        };
        self.state = State::Behind { ask_at };
    }

    /// Asks after something has happened that makes a look necessary soon.
    fn ask_anew(&mut self) -> Step {
        self.look_at = Timestamp::ZERO;
        self.interval = FIRST_CHECK;
        self.ask()
    }

    fn ask(&mut self) -> Step {
        self.state = State::Joining { called: false };
        Step::Join
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_secs(1000);

    fn standing(ahead: u32, is_called: bool) -> Standing {
        Standing {
            ahead,
            number: 7,
            life: 3,
            is_called,
        }
    }

    fn joined(polls: Duration) -> Place {
        Place::join(polls, REFRESH).0
    }

    #[test]
    fn a_process_that_tries_only_as_the_first_asks_whether_it_is_when_it_is_called() {
        let mut place = joined(Duration::ZERO);
        for ahead in [2, 1, 0] {
            place.handle_standing(Timestamp::ZERO, ahead == 0, standing(ahead, true));
            assert_eq!(place.is_active(), ahead == 0);
            let asks = (ahead > 0).then_some(Step::Join);
            assert_eq!(place.handle_call(Timestamp::ZERO, false), asks);
        }
    }

    #[test]
    fn a_process_asks_for_its_place_if_it_is_not_called() {
        let polls = Duration::from_millis(50);
        for (is_called, due) in [(true, FIRST_CHECK), (false, polls)] {
            let mut place = joined(polls);
            place.handle_standing(Timestamp::ZERO, false, standing(1, is_called));
            assert_eq!(place.timeout(), Some(Timestamp::ZERO.saturating_add(due)));
        }
    }

    #[test]
    fn a_process_that_asks_for_its_place_looks_as_often_as_others() {
        let mut place = joined(Duration::from_millis(50));
        let mut looks = Vec::new();
        for millis in (0..8000).step_by(50) {
            let now = Timestamp::ZERO.saturating_add(Duration::from_millis(millis));
            if place.handle_timeout(now) == Some(Step::Look) {
                looks.push(millis);
                place.handle_look(now, false);
            }
            place.handle_standing(now, false, standing(1, false));
        }
        assert_eq!(looks, [1000, 3000, 7000]);
    }

    #[test]
    fn a_process_without_a_place_tries_by_itself_and_asks_again_each_second() {
        let mut place = joined(Duration::ZERO);
        let mut now = Timestamp::ZERO;
        for _ in 0..3 {
            place.handle_failure(now);
            assert!(place.is_active());
            now = now.saturating_add(FIRST_CHECK);
            assert_eq!(place.timeout(), Some(now));
            assert_eq!(place.handle_timeout(now), Some(Step::Join));
        }
        place.handle_standing(now, false, standing(1, true));
        assert!(!place.is_active(), "it has a place again, behind another");
    }

    #[test]
    fn a_process_tries_without_a_line_once_its_node_was_silent_for_two_seconds() {
        let polls = Duration::from_millis(50);
        // Silent from the first question on, or from just before the first look.
        for (is_called, answers) in [(true, 0), (false, 0), (false, 18)] {
            let mut place = joined(polls);
            place.handle_standing(Timestamp::ZERO, false, standing(1, is_called));
            let (mut now, mut silent_since) = (Timestamp::ZERO, None);
            for question in 0.. {
                now = place.timeout().unwrap();
                if place.handle_timeout(now) == Some(Step::Look) {
                    place.handle_look(now, false);
                }
                if question < answers {
                    place.handle_standing(now, false, standing(1, is_called));
                    continue;
                }
                silent_since.get_or_insert(now);
                place.handle_failure(now);
                if place.is_active() {
                    break;
                }
                assert_eq!(place.inherit(), None, "a new request asks no sooner");
            }
            let silence = now.saturating_duration_since(silent_since.unwrap());
            assert_eq!(silence, 2 * FIRST_CHECK, "{is_called}, {answers}");
        }
    }

    #[test]
    fn two_looks_in_a_row_at_a_free_key_let_a_process_try() {
        let mut place = joined(Duration::ZERO);
        let mut now = Timestamp::ZERO;
        for is_free in [true, false, false, true, true] {
            assert!(!place.is_active());
            place.handle_standing(now, false, standing(1, true));
            now = now.saturating_add(LONGEST_CHECK);
            assert_eq!(place.handle_timeout(now), Some(Step::Look));
            place.handle_look(now, is_free);
        }
        assert!(place.is_active());
    }

    #[test]
    fn a_place_of_another_life_is_taken_again_with_its_number() {
        for ahead in [0, 1] {
            let mut place = joined(Duration::ZERO);
            assert_eq!(place.handle_life(None), None, "its answer is on its way");
            place.handle_standing(Timestamp::ZERO, ahead == 0, standing(ahead, true));
            assert_eq!(place.handle_life(Some(3)), None);
            assert_eq!(place.handle_life(Some(4)), Some(Step::Join));
            assert_eq!(place.number(), Some(7));
        }
    }
}
