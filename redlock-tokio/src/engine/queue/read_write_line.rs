use std::collections::BTreeMap;

use redlock_core::Timestamp;

use super::{Ticket, outcome::FollowUp};

/// What a request of a lock for readers and writers wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A reader that joins another one of this process if it can.
    Reader,
    /// A reader that asks the nodes itself.
    LoneReader,
    Writer,
}

/// The requests of this process for one lock of readers and writers: those that have a turn, and those that wait.
///
/// A turn lasts from the first attempt to the end of the hold. A writer has its turn alone. Of readers, one asks the nodes,
/// and those that come meanwhile wait for its answer and then share its lease. The line is in order of arrival, so a writer
/// that waits keeps later readers waiting, too.
#[derive(Debug)]
pub(super) struct ReadWriteLine<T> {
    turns: BTreeMap<Ticket, Turn<T>>,
    waiting: BTreeMap<Ticket, (Role, T)>,
    waiting_writers: usize,
}

#[derive(Debug)]
struct Turn<T> {
    holder: T,
    is_writer: bool,
    /// Since when the lock is held within the process.
    since: Option<Timestamp>,
}

impl Role {
    const fn is_reader(self) -> bool {
        matches!(self, Self::Reader | Self::LoneReader)
    }
}

impl<T: Clone> ReadWriteLine<T> {
    pub(super) const fn new() -> Self {
        Self {
            turns: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_writers: 0,
        }
    }

    /// Returns whether a request that has just come may have a turn. A reader that asks the nodes itself need not wait behind
    /// readers that wait to join another.
    pub(super) fn may_begin(&self, role: Role) -> bool {
        let overtakes = role == Role::LoneReader && self.waiting_writers == 0;
        (self.waiting.is_empty() || overtakes) && self.has_room(role)
    }

    /// Returns whether a request that is the first in line may have a turn.
    fn has_room(&self, role: Role) -> bool {
        let mut turns = self.turns.values();
        match role {
            Role::Writer => self.turns.is_empty(),
            Role::LoneReader => turns.all(|turn| !turn.is_writer),
            Role::Reader => turns.all(|turn| !turn.is_writer && turn.since.is_some()),
        }
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, role: Role, holder: T) {
        let turn = Turn {
            holder,
            is_writer: !role.is_reader(),
            since: None,
        };
        self.turns.insert(ticket, turn);
    }

    /// Puts another in the place of the holder with this ticket.
    pub(super) fn replace_turn(&mut self, ticket: Ticket, holder: &T) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.holder.clone_from(holder);
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket, role: Role, waiter: T) {
        self.waiting.insert(ticket, (role, waiter));
        self.waiting_writers += usize::from(role == Role::Writer);
    }

    /// Notes that a lease has got the lock.
    pub(super) fn note_hold(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.since.get_or_insert(now);
        }
    }

    /// Notes that a writer has become a reader.
    pub(super) fn note_downgrade(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.is_writer = false;
        }
    }

    /// Ends a turn. Returns whether there was one.
    pub(super) fn end_turn(&mut self, ticket: Ticket) -> bool {
        self.turns.remove(&ticket).is_some()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let removed = self.waiting.remove(&ticket);
        self.note_removed(removed).is_some()
    }

    fn pop(&mut self) -> Option<(Ticket, (Role, T))> {
        let (ticket, waiter) = self.waiting.pop_first()?;
        Some((ticket, self.note_removed(Some(waiter))?))
    }

    fn note_removed(&mut self, waiter: Option<(Role, T)>) -> Option<(Role, T)> {
        let is_writer = matches!(waiter, Some((Role::Writer, _)));
        self.waiting_writers -= usize::from(is_writer);
        waiter
    }

    /// Returns the readers that hold the lock and that a new reader may join: those that came last, if nobody waits.
    pub(super) fn open_turn(&self) -> Option<&T> {
        let (_, turn) = self.turns.last_key_value()?;
        let is_held = !turn.is_writer && turn.since.is_some();
        (is_held && self.waiting.is_empty()).then_some(&turn.holder)
    }

    /// Removes the first waiter, if it is a reader that may join those with this ticket.
    pub(super) fn next_to_join(
        &mut self,
        ticket: Ticket,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let turn = self.turns.get(&ticket)?;
        let (_, (role, waiter)) = self.waiting.first_key_value()?;
        if turn.is_writer || *role != Role::Reader || !fits(waiter) {
            return None;
        }
        self.pop().map(|(_, (_, waiter))| waiter)
    }

    /// Removes the first waiter, for the writer with this ticket to hand the lock over, if that has held it within this
    /// process for less than `is_short` allows, and the waiter is a writer that fits.
    pub(super) fn next_writer(
        &mut self,
        ticket: Ticket,
        is_short: impl FnOnce(Timestamp) -> bool,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let since = self.turns.get(&ticket)?.since?;
        let (_, (role, waiter)) = self.waiting.first_key_value()?;
        if role.is_reader() || !is_short(since) || !fits(waiter) {
            return None;
        }
        self.pop().map(|(_, (_, waiter))| waiter)
    }

    /// Gives turns to waiters while there is room. `backs_off` says whether a writer lets other processes go first.
    pub(super) fn advance(&mut self, backs_off: bool) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        while let Some((_, (role, _))) = self.waiting.first_key_value()
            && self.has_room(*role)
            && let Some((ticket, (role, waiter))) = self.pop()
        {
            self.give_turn(ticket, role, waiter.clone());
            let backs_off = backs_off && role == Role::Writer;
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
