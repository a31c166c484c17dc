use std::{collections::VecDeque, time::Duration};

use redlock_core::Timestamp;

use super::Terms;
use crate::key_set::KeySet;

/// Who wants one key within this process: one has the turn, if any, and the others wait.
///
/// The one with the turn contends with the rest of the world for the lock, and then holds it.
#[derive(Debug)]
pub(super) struct Line<T> {
    turn: Option<(u64, T)>,
    /// In the order in which they came.
    waiting: VecDeque<Waiter<T>>,
    streak: Option<Streak>,
    mean_hold: Option<Duration>,
}

/// One who waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter<T> {
    pub(super) id: u64,
    pub(super) who: T,
    /// It waits in the lines of all of them.
    pub(super) keys: KeySet,
}

/// One hold after the other within this process, while the rest of the world waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    since: Timestamp,
    handovers: u32,
}

impl<T: Clone> Line<T> {
    pub(super) fn new(streak: Option<Streak>) -> Self {
        Self {
            turn: None,
            waiting: VecDeque::new(),
            streak,
            mean_hold: None,
        }
    }

    pub(super) fn give_turn(&mut self, id: u64, who: T) {
        self.turn = Some((id, who));
    }

    /// Ends the turn of one who has held the lock from `held` on, if at all. Returns whether the next is
    /// to let others have a try first; nothing if it was not that one's turn.
    pub(super) fn end_turn(
        &mut self,
        id: u64,
        now: Timestamp,
        held: Option<Timestamp>,
        terms: &Terms,
    ) -> Option<bool> {
        self.turn.take_if(|(has, _)| *has == id)?;
        let Some(held) = held else {
            // Somebody else may have had the lock meanwhile.
            self.streak = None;
            return Some(false);
        };
        self.note_hold(now, held);
        let stands_back = !self.streak(held).may_go_on(now, terms);
        if stands_back && !self.waiting.is_empty() {
            self.streak = None;
        }
        Some(stands_back)
    }

    pub(super) fn push(&mut self, waiter: Waiter<T>) {
        self.waiting.push_back(waiter);
    }

    /// Takes somebody out of the line who waits. Returns whether there was such a one. (Those who give up
    /// are most often the first, so this does not look far.)
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let place = self.waiting.iter().position(|other| other.id == id);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// Returns the first who waits and may go on.
    pub(super) fn first(&self, may_go_on: impl Fn(&Waiter<T>) -> bool) -> Option<Waiter<T>> {
        self.waiting.iter().find(|it| may_go_on(it)).cloned()
    }

    /// Returns whether who holds the lock since `held` may hand it over.
    pub(super) fn may_hand_over(&mut self, held: Timestamp, now: Timestamp, terms: &Terms) -> bool {
        let streak = *self.streak(held);
        streak.may_go_on(now, terms) && streak.handovers < terms.max_handovers
    }

    pub(super) fn note_handover(&mut self, held: Timestamp, now: Timestamp) {
        self.streak(held).handovers += 1;
        self.note_hold(now, held);
    }

    pub(super) fn turn(&self) -> Option<&T> {
        self.turn.as_ref().map(|(_, who)| who)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turn.is_none() && self.waiting.is_empty()
    }

    /// Returns how long one who joined now would wait, by how long the lock was held of late.
    pub(super) fn estimate(&self) -> Option<Duration> {
        let ahead = u32::try_from(1 + self.waiting.len()).unwrap_or(u32::MAX);
        Some(self.mean_hold?.saturating_mul(ahead))
    }

    /// Returns the streak up to the hold that was the last.
    pub(super) fn last_streak(&self) -> Option<Streak> {
        self.streak
    }

    fn streak(&mut self, held: Timestamp) -> &mut Streak {
        self.streak.get_or_insert(Streak {
            since: held,
            handovers: 0,
        })
    }

    /// Of late is: the last eight or so.
    fn note_hold(&mut self, now: Timestamp, held: Timestamp) {
        let hold = now.saturating_duration_since(held);
        self.mean_hold = Some(match self.mean_hold {
            None => hold,
            Some(mean) => (mean * 7).saturating_add(hold) / 8,
        });
    }
}

impl Streak {
    pub(super) fn may_go_on(&self, now: Timestamp, terms: &Terms) -> bool {
        now.saturating_duration_since(self.since) < terms.streak
    }
}
