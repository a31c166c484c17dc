use std::{collections::VecDeque, time::Duration};

use redlock_core::Timestamp;

use super::Terms;

/// Who wants one key within this process: one has the turn, the others wait in order.
///
/// The one with the turn contends with the rest of the world for the lock, and then holds it.
#[derive(Debug)]
pub(super) struct Line<T> {
    turn: (u64, T),
    /// In the order in which they came.
    waiting: VecDeque<(u64, T)>,
    streak: Option<Streak>,
    mean_hold: Option<Duration>,
}

/// One hold after the other within this process, while the rest of the world waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    since: Timestamp,
    handovers: u32,
}

/// Who has the turn now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next<T> {
    pub(crate) who: T,
    /// Whether to let others have a try first.
    pub(crate) stands_back: bool,
}

impl<T: Clone> Line<T> {
    pub(super) fn new(id: u64, who: T, streak: Option<Streak>) -> Self {
        Self {
            turn: (id, who),
            waiting: VecDeque::new(),
            streak,
            mean_hold: None,
        }
    }

    pub(super) fn push(&mut self, id: u64, who: T) {
        self.waiting.push_back((id, who));
    }

    /// Takes somebody out of the line who waits. Returns whether there was such a one. (Those who give up
    /// are most often the first, so this does not look far.)
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let place = self.waiting.iter().position(|(other, _)| *other == id);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// Returns the streak up to a hold that ends now and began at `held`.
    pub(super) fn end_streak(mut self, held: Timestamp) -> Streak {
        *self.streak(held)
    }

    /// Gives the turn to the next, since who had it has ended, and has held the lock from `held` on if
    /// at all. Nobody is next if nobody waits.
    pub(super) fn advance(
        &mut self,
        now: Timestamp,
        held: Option<Timestamp>,
        terms: &Terms,
    ) -> Option<Next<T>> {
        let (id, who) = self.waiting.pop_front()?;
        self.turn = (id, who.clone());
        let stands_back = held.is_some_and(|held| {
            self.note_hold(now, held);
            !self.streak(held).may_go_on(now, terms)
        });
        if stands_back {
            self.streak = None;
        }
        Some(Next { who, stands_back })
    }

    /// Takes the next out of the line to hand the lock over to, if who holds it since `held` may do so.
    pub(super) fn heir(
        &mut self,
        now: Timestamp,
        held: Timestamp,
        terms: &Terms,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let streak = *self.streak(held);
        let (_, first) = self.waiting.front()?;
        if !streak.may_go_on(now, terms) || streak.handovers >= terms.max_handovers || !fits(first)
        {
            return None;
        }
        let (_, heir) = self.waiting.pop_front()?;
        self.streak(held).handovers += 1;
        self.note_hold(now, held);
        Some(heir)
    }

    pub(super) fn has_turn(&self, id: u64) -> bool {
        self.turn.0 == id
    }

    pub(super) fn turn(&self) -> &T {
        &self.turn.1
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how long one who joined now would wait, by how long the lock was held of late.
    pub(super) fn estimate(&self) -> Option<Duration> {
        let ahead = u32::try_from(1 + self.waiting.len()).unwrap_or(u32::MAX);
        Some(self.mean_hold?.saturating_mul(ahead))
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
