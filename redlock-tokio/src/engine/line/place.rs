//! The rule of the line: when a process that waits for a key may try to get it.
//!
//! The processes that wait for a key stand in a line on one node. Only the first of them watches the key and tries, and a
//! process that leaves the line calls the next. The line is advice: who holds a lock is decided by the votes of a majority.
//! So a line that is lost, doubled or out of date costs time and never safety.
//!
//! Nobody tells the line that it is alive. A first that is dead, stopped or cut off lets the key lie free, the others see that
//! when they look, and then it loses its place.

use std::time::Duration;

use redlock_core::Timestamp;

use crate::node::Member;

/// How long a process waits for its call before it looks by itself. The time doubles with each look.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// The longest time between two looks, and between two messages to the node of the line.
pub(crate) const LONGEST_CHECK: Duration = Duration::from_secs(10);

/// So many looks must find the key free before the first of the line loses its place.
const LOOKS_TO_EVICT: u32 = 2;

/// After so many, the process tries by itself, whatever the node of the line says.
const LOOKS_TO_TRY: u32 = 4;

/// So many requests in a row that the node of the line does not answer, and the process tries without a line.
const FAILURES: u32 = 3;

/// What the driver of a place has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Ask the node of the line for the place, which is at the end unless the process has one. `evicts` is a member that
    /// has let the key lie free: it loses its place if it is still the first.
    Join { evicts: Option<Member> },
    /// Look whether the key is free on a majority of the nodes, and say so by [`Place::handle_look`].
    Look,
}

/// A place in the line of a key.
///
/// ```text
///            answer: first
///  Joining -----------------> Active
///    |  ^                       ^
///    |  | asks again            | called
///    v  |                       |
///  Behind or Looking -----------+
/// ```
///
/// A process that tries only as the first asks again when it is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    state: State,
    /// How often to ask for the place if the node does not call.
    polls: Duration,
    is_called: bool,
    /// When to look next, and the time between that look and the one after it.
    look_at: Timestamp,
    interval: Duration,
    /// How many looks have found the key free while this was the first of the line.
    idle: (u32, Option<Member>),
    /// How many requests in a row were not answered.
    failures: u32,
    /// Whether the node has told the place once.
    has_place: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The node has not answered yet. `called` is whether a call has come meanwhile, which may be newer than the answer.
    Joining {
        called: bool,
    },
    Behind {
        first: Option<Member>,
        ask_at: Timestamp,
    },
    Looking {
        first: Option<Member>,
    },
    /// May try. The place is kept by messages, at first after a second.
    Active {
        ask_at: Timestamp,
    },
}

impl Place {
    /// Takes a place in a line. If the node does not call, the process asks each `polls` for its place.
    pub(crate) fn join(polls: Duration) -> (Self, Step) {
        let place = Self {
            state: State::Joining { called: false },
            polls,
            is_called: false,
            look_at: Timestamp::ZERO,
            interval: FIRST_CHECK,
            idle: (0, None),
            failures: 0,
            has_place: false,
        };
        (place, Step::Join { evicts: None })
    }

    /// Takes the answer of the node to a request to join: whether the process may try, the first of the line, and whether the
    /// node calls this process.
    pub(crate) fn handle_standing(
        &mut self,
        now: Timestamp,
        may_try: bool,
        first: Member,
        is_called: bool,
    ) -> Option<Step> {
        self.is_called = is_called;
        self.failures = 0;
        self.has_place = true;
        match self.state {
            State::Joining { .. } if may_try => {
                self.activate(now);
                None
            }
            State::Joining { called: true } => Some(self.ask(None)),
            State::Joining { called: false } => {
                self.fall_behind(now, Some(first));
                None
            }
            _ => None,
        }
    }

    /// Takes the news that the node has not answered. The process keeps its place for a while, because the node may be
    /// back in a moment. Without a place it tries by itself, and asks for one again soon: those in the line would pass it
    /// again and again.
    pub(crate) fn handle_failure(&mut self, now: Timestamp) {
        self.failures += 1;
        match &mut self.state {
            State::Joining { .. } if !self.has_place || self.failures >= FAILURES => {
                self.activate(now);
            }
            State::Joining { .. } => {
                self.interval = FIRST_CHECK;
                self.look_at = self.look_at.max(now.saturating_add(FIRST_CHECK));
                self.fall_behind(now, None);
            }
            // Else the place would expire after another one that is lost.
            State::Active { ask_at } if self.has_place => *ask_at = now.saturating_add(FIRST_CHECK),
            _ => {}
        }
    }

    /// Takes a call: a process has left the line, so that this one may try. An answer that is on its way may be older. Unless it
    /// `may_try`, the process tries only as the first, and asks whether it is.
    pub(crate) fn handle_call(&mut self, now: Timestamp, may_try: bool) -> Option<Step> {
        match &mut self.state {
            State::Joining { called } => *called = true,
            State::Behind { .. } | State::Looking { .. } if !may_try => {
                return Some(self.ask(None));
            }
            State::Behind { .. } | State::Looking { .. } => self.activate(now),
            State::Active { .. } => {}
        }
        None
    }

    /// Takes the place over for another request of the process. Earlier requests are not answered any more.
    pub(crate) fn inherit(&mut self) -> Option<Step> {
        match self.state {
            State::Joining { .. } => Some(self.ask_anew()),
            // The node has not answered, and is asked once a second.
            State::Behind { .. } if self.failures > 0 => None,
            _ => self.handle_connection(),
        }
    }

    /// Takes the news of a new connection to the node, which has called nobody on it, and may have forgotten the line.
    pub(crate) fn handle_connection(&mut self) -> Option<Step> {
        match &mut self.state {
            State::Joining { called } => {
                *called = true;
                None
            }
            State::Behind { .. } | State::Looking { .. } => Some(self.ask_anew()),
            State::Active { .. } => None,
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next.
    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        match self.state {
            State::Behind { ask_at, .. } => Some(ask_at.min(self.look_at)),
            State::Active { ask_at } => Some(ask_at),
            State::Joining { .. } | State::Looking { .. } => None,
        }
    }

    /// Looks whether the key lies free, since a call may be lost, or the first of the line be dead. Or only asks.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp) -> Option<Step> {
        match &mut self.state {
            State::Behind { first, .. } if self.look_at <= now => {
                self.state = State::Looking { first: *first };
                Some(Step::Look)
            }
            State::Behind { ask_at, .. } if *ask_at <= now => Some(self.ask(None)),
            State::Active { ask_at } if *ask_at <= now => {
                // Another request of the process may have left the line meanwhile, so that the place is gone.
                self.interval = (2 * self.interval).min(LONGEST_CHECK);
                *ask_at = now.saturating_add(self.interval);
                Some(Step::Join { evicts: None })
            }
            _ => None,
        }
    }

    /// Takes what a look has found. A first that has let the key lie free for two looks loses its place.
    pub(crate) fn handle_look(&mut self, now: Timestamp, is_free: bool) -> Option<Step> {
        let State::Looking { first } = self.state else {
            return None;
        };
        let (looks, of) = self.idle;
        // A key that is taken may be taken by those who stand in no line, or in another one. So only a change of the first is a
        // sign of life.
        let looks = if of == first { looks } else { 0 };
        self.idle = (looks + u32::from(is_free), first);
        if is_free {
            self.interval = FIRST_CHECK;
        }
        if self.idle.0 >= LOOKS_TO_TRY {
            self.activate(now);
            return None;
        }
        let evicts = first.filter(|_| self.idle.0 >= LOOKS_TO_EVICT && of == first);
        Some(self.ask(evicts))
    }

    /// Returns whether the process may watch the key and try.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Active { .. })
    }

    fn activate(&mut self, now: Timestamp) {
        self.interval = FIRST_CHECK;
        let ask_at = now.saturating_add(FIRST_CHECK);
        self.state = State::Active { ask_at };
    }

    fn fall_behind(&mut self, now: Timestamp, first: Option<Member>) {
        if self.look_at <= now {
            self.look_at = now.saturating_add(self.interval);
            self.interval = (2 * self.interval).min(LONGEST_CHECK);
        }
        let ask_at = match first {
            // The node has not answered. Asked more often, it would soon count as one without a line.
            None => now.saturating_add(FIRST_CHECK),
            Some(_) if self.is_called => self.look_at,
            Some(_) => now.saturating_add(self.polls),
        };
        self.state = State::Behind { first, ask_at };
    }

    /// Asks after something has happened that makes a look necessary soon.
    fn ask_anew(&mut self) -> Step {
        self.look_at = Timestamp::ZERO;
        self.interval = FIRST_CHECK;
        self.ask(None)
    }

    fn ask(&mut self, evicts: Option<Member>) -> Step {
        self.state = State::Joining { called: false };
        Step::Join { evicts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Member = Member(1);

    #[test]
    fn a_process_that_tries_only_as_the_first_asks_whether_it_is_when_it_is_called() {
        let (mut place, _) = Place::join(Duration::ZERO);
        for is_first in [false, false, true] {
            place.handle_standing(Timestamp::ZERO, is_first, FIRST, true);
            assert_eq!(place.is_active(), is_first);
            let asks = (!is_first).then_some(Step::Join { evicts: None });
            assert_eq!(place.handle_call(Timestamp::ZERO, false), asks);
        }
    }

    #[test]
    fn a_process_that_is_not_called_asks_for_its_place() {
        let polls = Duration::from_millis(50);
        for (is_called, due) in [(true, FIRST_CHECK), (false, polls)] {
            let (mut place, _) = Place::join(polls);
            place.handle_standing(Timestamp::ZERO, false, FIRST, is_called);
            assert_eq!(place.timeout(), Some(Timestamp::ZERO.saturating_add(due)));
        }
    }

    #[test]
    fn a_process_that_asks_for_its_place_looks_as_often_as_others() {
        let (mut place, _) = Place::join(Duration::from_millis(50));
        let mut looks = Vec::new();
        for millis in (0..8000).step_by(50) {
            let now = Timestamp::ZERO.saturating_add(Duration::from_millis(millis));
            if place.handle_timeout(now) == Some(Step::Look) {
                looks.push(millis);
                place.handle_look(now, false);
            }
            place.handle_standing(now, false, FIRST, false);
        }
        assert_eq!(looks, [1000, 3000, 7000]);
    }

    #[test]
    fn a_process_without_a_place_tries_by_itself_and_asks_again_after_a_second() {
        let (mut place, _) = Place::join(Duration::ZERO);
        place.handle_failure(Timestamp::ZERO);
        assert!(place.is_active());
        let soon = Timestamp::ZERO.saturating_add(FIRST_CHECK);
        assert_eq!(place.timeout(), Some(soon));
        let evicts = None;
        assert_eq!(place.handle_timeout(soon), Some(Step::Join { evicts }));
    }

    #[test]
    fn a_process_tries_without_a_line_once_its_node_was_silent_for_two_seconds() {
        let polls = Duration::from_millis(50);
        // Silent from the first question on, or from just before the first look.
        for (is_called, answers) in [(true, 0), (false, 0), (false, 18)] {
            let (mut place, _) = Place::join(polls);
            place.handle_standing(Timestamp::ZERO, false, FIRST, is_called);
            let (mut now, mut silent_since) = (Timestamp::ZERO, None);
            for question in 0.. {
                now = place.timeout().unwrap();
                if place.handle_timeout(now) == Some(Step::Look) {
                    place.handle_look(now, false);
                }
                if question < answers {
                    place.handle_standing(now, false, FIRST, is_called);
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

    /// Somebody else keeps the key busy, and the first of this line is never seen to leave it.
    #[test]
    fn two_looks_at_a_free_key_evict_the_first_although_the_key_was_taken_between_them() {
        let (mut place, _) = Place::join(Duration::ZERO);
        let mut now = Timestamp::ZERO;
        let evicting = [true, false, false, true].map(|is_free| {
            place.handle_standing(now, false, FIRST, true);
            now = now.saturating_add(LONGEST_CHECK);
            assert_eq!(place.handle_timeout(now), Some(Step::Look));
            place.handle_look(now, is_free)
        });
        let evicts = Some(FIRST);
        assert_eq!(evicting[3], Some(Step::Join { evicts }));
        assert_eq!(evicting[..3], [Some(Step::Join { evicts: None }); 3]);
    }
}
