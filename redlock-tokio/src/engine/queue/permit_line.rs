use std::collections::BTreeMap;

use redlock_core::Timestamp;

use super::{Ticket, outcome::FollowUp};

/// The requests of this process for permits of one semaphore: those that have a turn, and those that wait.
///
/// A turn lasts from the first attempt to the end of the hold, and there are no more turns than permits. They ask at once,
/// each for another slot, so a burst costs one round trip. No further turn begins while one has found no slot free and
/// still waits: all would watch all slots, and only one can get the next permit.
#[derive(Debug)]
pub(super) struct PermitLine<T> {
    permits: usize,
    turns: BTreeMap<Ticket, Turn<T>>,
    waiting: BTreeMap<Ticket, T>,
}

#[derive(Debug)]
struct Turn<T> {
    holder: T,
    /// Since when the permit is handed over within the process.
    since: Option<Timestamp>,
    /// Whether it has found no slot free.
    found_none: bool,
}

impl<T: Clone> PermitLine<T> {
    pub(super) const fn new() -> Self {
        Self {
            permits: 1,
            turns: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Notes with how many permits a request counts. Requests of one process should agree. If not, the largest number
    /// counts, as it does among processes.
    pub(super) fn note_permits(&mut self, permits: usize) {
        self.permits = self.permits.max(permits);
    }

    /// Returns whether one more request may have a turn.
    pub(super) fn has_room(&self) -> bool {
        let watches = |turn: &Turn<T>| turn.found_none && turn.since.is_none();
        self.turns.len() < self.permits && !self.turns.values().any(watches)
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, holder: T) {
        let turn = Turn {
            holder,
            since: None,
            found_none: false,
        };
        self.turns.insert(ticket, turn);
    }

    /// Puts another in the place of the holder with this ticket.
    pub(super) fn replace_turn(&mut self, ticket: Ticket, holder: &T) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.holder.clone_from(holder);
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket, waiter: T) {
        self.waiting.insert(ticket, waiter);
    }

    /// Notes that a lease has found no slot free.
    pub(super) fn note_none(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.found_none = true;
        }
    }

    /// Notes that a lease has got its permit.
    pub(super) fn note_permit(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.since.get_or_insert(now);
        }
    }

    /// Ends a turn. Returns whether there was one.
    pub(super) fn end_turn(&mut self, ticket: Ticket) -> bool {
        self.turns.remove(&ticket).is_some()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket).is_some()
    }

    /// Removes the first waiter, for the holder with this ticket to hand its permit over, if the permit has been handed
    /// over for less than `is_short` allows, and the waiter fits.
    pub(super) fn successor(
        &mut self,
        ticket: Ticket,
        is_short: impl FnOnce(Timestamp) -> bool,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let since = self.turns.get(&ticket)?.since?;
        if !is_short(since) || !fits(self.waiting.first_key_value()?.1) {
            return None;
        }
        self.waiting.pop_first().map(|(_, waiter)| waiter)
    }

    /// Gives turns to waiters while there is room.
    pub(super) fn advance(&mut self, backs_off: bool) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        while self.has_room()
            && let Some((ticket, waiter)) = self.waiting.pop_first()
        {
            self.give_turn(ticket, waiter.clone());
            follow_ups.push(FollowUp::StartTurn { waiter, backs_off });
        }
        follow_ups
    }

    /// Returns all that have a turn, in order of arrival.
    pub(super) fn turns(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.turns
            .iter()
            .map(|(ticket, turn)| (*ticket, &turn.holder))
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.waiting.is_empty()
    }
}
