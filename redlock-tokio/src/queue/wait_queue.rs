use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::Timestamp;

use super::{Terms, Ticket, streak::Streak};

/// The waiters for one key within this process, and the one that has the turn: it contends with the
/// rest of the world for the lock, and then holds it.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    turn: Option<(Ticket, T)>,
    /// The waiters for this key alone.
    single: BTreeMap<Ticket, T>,
    /// The waiters for this key and others.
    several: BTreeSet<Ticket>,
    lapsed: Option<Lapsed>,
    streak: Option<Streak>,
    mean_hold: Option<Duration>,
}

/// A reservation that has lapsed.
#[derive(Clone, Copy, Debug)]
struct Lapsed {
    reserver: Ticket,
    /// The last waiter of that moment: up to this one they pass.
    last: Ticket,
}

impl<T> WaitQueue<T> {
    pub(super) fn new(streak: Option<Streak>) -> Self {
        Self {
            turn: None,
            single: BTreeMap::new(),
            several: BTreeSet::new(),
            lapsed: None,
            streak,
            mean_hold: None,
        }
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, waiter: T) {
        self.turn = Some((ticket, waiter));
    }

    /// Ends the turn of one that has held the lock since `held`, if at all. Returns whether the next
    /// stands back, or `None` if it was not its turn.
    pub(super) fn end_turn(
        &mut self,
        ticket: Ticket,
        now: Timestamp,
        held: Option<Timestamp>,
        terms: &Terms,
    ) -> Option<bool> {
        self.turn.take_if(|(has, _)| *has == ticket)?;
        let Some(held) = held else {
            // Another process may have had the lock meanwhile.
            self.streak = None;
            return Some(false);
        };
        self.note_hold(now, held);
        let stands_back = !self.streak(held).may_go_on(now, terms);
        if stands_back && self.waiting() > 0 {
            self.streak = None;
        }
        Some(stands_back)
    }

    /// Adds a waiter for this key alone.
    pub(super) fn push(&mut self, ticket: Ticket, waiter: T) {
        self.single.insert(ticket, waiter);
    }

    /// Adds a waiter for this key and others.
    pub(super) fn push_several(&mut self, ticket: Ticket) {
        self.several.insert(ticket);
    }

    /// Removes the first waiter for this key alone.
    pub(super) fn pop(&mut self) -> Option<(Ticket, T)> {
        self.single.pop_first()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.single.remove(&ticket).is_some() || self.several.remove(&ticket)
    }

    /// Lets all waiters of this moment pass the reservation for one of them.
    pub(super) fn let_pass(&mut self, reserver: Ticket) {
        let single = self.single.last_key_value().map(|(ticket, _)| *ticket);
        let last = single.max(self.several.last().copied());
        self.lapsed = last.map(|last| Lapsed { reserver, last });
    }

    /// Returns the first waiter, whatever it waits for.
    pub(super) fn first(&self) -> Option<Ticket> {
        let single = self.first_single().map(|(ticket, _)| ticket);
        match (single, self.first_several()) {
            (Some(single), Some(several)) => Some(single.min(several)),
            (single, several) => single.or(several),
        }
    }

    /// Returns the first waiter for this key alone.
    pub(super) fn first_single(&self) -> Option<(Ticket, &T)> {
        let first = self.single.first_key_value();
        first.map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// Returns the first waiter for this key and others.
    pub(super) fn first_several(&self) -> Option<Ticket> {
        self.several.first().copied()
    }

    /// Returns the last waiter for this key and others.
    #[cfg(test)]
    pub(super) fn last_several(&self) -> Option<Ticket> {
        self.several.last().copied()
    }

    /// Returns the waiters for this key and others that came before the first for this key alone.
    pub(super) fn several_in_front(&self) -> impl Iterator<Item = Ticket> {
        let single = self.first_single().map(|(ticket, _)| ticket);
        let several = self.several.iter().copied();
        several.take_while(move |it| single.is_none_or(|single| *it < single))
    }

    /// Returns how many wait for this key and others.
    pub(super) fn count_several(&self) -> usize {
        self.several.len()
    }

    /// Returns whether the reservation for one waiter lets another pass.
    pub(super) fn lets_pass(&self, reserver: Ticket, ticket: Ticket) -> bool {
        let lapsed = self.lapsed.filter(|it| it.reserver == reserver);
        lapsed.is_some_and(|it| ticket <= it.last)
    }

    /// Returns whether the holder since `held` may hand the lock over.
    pub(super) fn may_hand_over(&mut self, held: Timestamp, now: Timestamp, terms: &Terms) -> bool {
        self.streak(held).may_hand_over(now, terms)
    }

    pub(super) fn note_handover(&mut self, held: Timestamp, now: Timestamp) {
        self.streak(held).note_handover();
        self.note_hold(now, held);
    }

    pub(super) fn turn(&self) -> Option<&T> {
        self.turn.as_ref().map(|(_, waiter)| waiter)
    }

    pub(super) fn waiting(&self) -> usize {
        self.single.len() + self.several.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turn.is_none() && self.waiting() == 0
    }

    /// Returns how long one that joined now would wait, by how long the last holds took.
    pub(super) fn estimate(&self) -> Option<Duration> {
        let ahead = u32::try_from(1 + self.waiting()).unwrap_or(u32::MAX);
        Some(self.mean_hold?.saturating_mul(ahead))
    }

    /// Returns the streak up to the last hold.
    pub(super) fn last_streak(&self) -> Option<Streak> {
        self.streak
    }

    fn streak(&mut self, held: Timestamp) -> &mut Streak {
        self.streak.get_or_insert(Streak::new(held))
    }

    /// Takes a hold into the mean of the last eight or so.
    fn note_hold(&mut self, now: Timestamp, held: Timestamp) {
        let hold = now.saturating_duration_since(held);
        self.mean_hold = Some(match self.mean_hold {
            None => hold,
            Some(mean) => (mean * 7).saturating_add(hold) / 8,
        });
    }
}
