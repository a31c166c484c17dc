use std::collections::BTreeMap;

use redlock_core::{Permits, Timestamp};

use super::{Ticket, line::Line, outcome::FollowUp};

/// The kind of a request for what several may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// One of so many permits of a semaphore.
    Permit(Permits),
    /// A reader that joins another one of this process if it can.
    Reader,
    /// A reader that asks the nodes itself.
    LoneReader,
    Writer,
    /// One that adopts a lock. It waits for nobody, and nobody waits for it.
    Adopter,
}

/// The requests of this process for one semaphore, or for one lock of readers and writers: those that have a turn, and
/// those that wait, in the order in which they came.
///
/// A turn lasts from the first attempt to the end of the hold. [`has_room`](Self::has_room) has the rule of each kind.
#[derive(Clone, Debug)]
pub(super) struct SharedLine<T> {
    turns: BTreeMap<Ticket, Turn<T>>,
    waiting: Line<(Role, T)>,
    /// How many permits there are. Requests of one process should agree. If not, the largest number counts, as it does
    /// among processes.
    permits: usize,
}

#[derive(Clone, Debug)]
struct Turn<T> {
    holder: T,
    role: Role,
    /// Since when this process holds the lock or permit.
    since: Option<Timestamp>,
    /// Whether it has found no permit free.
    found_none: bool,
}

impl Role {
    pub(super) const fn is_reader(self) -> bool {
        matches!(self, Self::Reader | Self::LoneReader)
    }

    /// Returns whether it lets other processes have their turns.
    pub(super) const fn takes_turns(self) -> bool {
        matches!(self, Self::Permit(_) | Self::Writer)
    }
}

impl<T: Clone> SharedLine<T> {
    pub(super) const fn new() -> Self {
        Self {
            turns: BTreeMap::new(),
            waiting: Line::new(),
            permits: 1,
        }
    }

    /// Returns whether a request that has just come may have a turn. A reader that asks the nodes itself need not wait behind
    /// readers that wait to join another.
    pub(super) fn may_begin(&mut self, role: Role) -> bool {
        if let Role::Permit(permits) = role {
            self.permits = self.permits.max(permits.count());
        }
        let passes = role == Role::LoneReader && self.waiting.iter().all(|(it, _)| it.is_reader());
        (passes || self.waiting.len() == 0) && self.has_room(role)
    }

    /// Returns whether a request that is the first in line may have a turn.
    ///
    /// - There are no more turns than permits. They ask at once, each for another slot, so a burst costs one round trip. No
    ///   further turn begins while one has found no slot free and still waits: all would watch all slots, and only one can
    ///   get the next permit.
    /// - One reader at a time asks the nodes. Readers that come before its answer wait for it, and then share its lease.
    /// - One writer at a time asks the nodes, beside readers that hold the lock: so it keeps readers of other processes out.
    fn has_room(&self, role: Role) -> bool {
        let mut turns = self.turns.values();
        match role {
            Role::Permit(_) => {
                let has_place = self.turns.len() < self.permits;
                has_place && !turns.any(|turn| turn.found_none && turn.since.is_none())
            }
            Role::Reader => turns.all(|turn| turn.role != Role::Writer && turn.since.is_some()),
            Role::LoneReader => !self.has_writer(),
            Role::Writer => turns.all(|turn| turn.role.is_reader() && turn.since.is_some()),
            Role::Adopter => true,
        }
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, role: Role, holder: T) {
        let turn = Turn {
            holder,
            role,
            since: None,
            found_none: false,
        };
        self.turns.insert(ticket, turn);
    }

    pub(super) fn push(&mut self, ticket: Ticket, role: Role, waiter: T) {
        self.waiting.push(ticket, (role, waiter));
    }

    /// Notes that a lease has got the lock or a permit.
    pub(super) fn note_hold(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.since.get_or_insert(now);
        }
    }

    /// Notes that a lease has found no permit free.
    pub(super) fn note_none_free(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.found_none = true;
        }
    }

    /// Notes that a writer has become a reader.
    pub(super) fn note_downgrade(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.role = Role::LoneReader;
        }
    }

    /// Ends a turn. Returns whether there was one.
    pub(super) fn end_turn(&mut self, ticket: Ticket) -> bool {
        self.turns.remove(&ticket).is_some()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(ticket)
    }

    /// Returns the readers that hold the lock and that a new reader may join: those that came last, if nobody waits.
    pub(super) fn open_turn(&self) -> Option<&T> {
        let (_, turn) = self.turns.last_key_value()?;
        let is_held = turn.role.is_reader() && turn.since.is_some();
        (is_held && !self.has_writer() && self.waiting.len() == 0).then_some(&turn.holder)
    }

    /// Removes the first waiter, if it is a reader that may join those with this ticket.
    pub(super) fn next_to_join(
        &mut self,
        ticket: Ticket,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let turn = self.turns.get(&ticket)?;
        let (_, (role, waiter)) = self.waiting.first()?;
        let may_join = turn.role.is_reader() && *role == Role::Reader && !self.has_writer();
        (may_join && fits(waiter)).then(|| self.pop()).flatten()
    }

    /// Removes the first waiter, for the writer or the holder of a permit with this ticket to hand over to it. Fails if the
    /// process has held the lock or permit for longer than `is_short` allows, or if the waiter is a reader or does not fit.
    pub(super) fn successor(
        &mut self,
        ticket: Ticket,
        is_short: impl FnOnce(Timestamp) -> bool,
        fits: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let since = self.turns.get(&ticket)?.since?;
        let (_, (role, waiter)) = self.waiting.first()?;
        if role.is_reader() || !is_short(since) || !fits(waiter) {
            return None;
        }
        self.pop()
    }

    fn has_writer(&self) -> bool {
        let mut turns = self.turns.values();
        turns.any(|turn| turn.role == Role::Writer)
    }

    fn pop(&mut self) -> Option<T> {
        self.waiting.pop().map(|(_, (_, waiter))| waiter)
    }

    /// Gives turns to waiters while there is room. `backs_off` says whether those that are no readers let other processes go
    /// first.
    pub(super) fn advance(&mut self, backs_off: bool) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        while let Some((ticket, (role, _))) = self.waiting.first()
            && let role = *role
            && self.has_room(role)
            && let Some(waiter) = self.pop()
        {
            self.give_turn(ticket, role, waiter.clone());
            let backs_off = backs_off && role.takes_turns();
            follow_ups.push(FollowUp::StartTurn { waiter, backs_off });
        }
        follow_ups
    }

    /// Returns all that have a turn, in order of arrival.
    pub(super) fn turns(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let turns = self.turns.iter();
        turns.map(|(ticket, turn)| (*ticket, &turn.holder))
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.waiting.len() == 0
    }
}
