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
    /// The one that waits for a permit for all that have found none.
    scout: Option<Ticket>,
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

impl<T> Turn<T> {
    /// Returns whether it has found no permit free, and waits for one.
    fn waits(&self) -> bool {
        self.found_none && self.since.is_none()
    }
}

impl Role {
    pub(super) const fn is_reader(self) -> bool {
        matches!(self, Self::Reader | Self::LoneReader)
    }

    /// Returns how many permits it counts with.
    const fn permits(self) -> usize {
        match self {
            Self::Permit(permits) => permits.count(),
            _ => 1,
        }
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
            scout: None,
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
    ///   further turn begins while one has found no slot free and still waits, but for those that the [scout](Self::make_scout)
    ///   has seen free.
    /// - One reader at a time asks the nodes. Readers that come before its answer wait for it, and then share its lease.
    /// - One writer at a time asks the nodes, beside readers that hold the lock: so it keeps readers of other processes out.
    fn has_room(&self, role: Role) -> bool {
        let mut turns = self.turns.values();
        match role {
            Role::Permit(_) => self.has_place() && !turns.any(Turn::waits),
            Role::Reader => turns.all(|turn| turn.role != Role::Writer && turn.since.is_some()),
            Role::LoneReader => !self.has_writer(),
            Role::Writer => turns.all(|turn| turn.role.is_reader() && turn.since.is_some()),
            Role::Adopter => true,
        }
    }

    fn has_place(&self) -> bool {
        self.turns.len() < self.permits
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

    /// Notes that a lease has got the lock or a permit, and gives turns to those that may ask now.
    pub(super) fn note_hold(&mut self, ticket: Ticket, now: Timestamp) -> Vec<FollowUp<T>> {
        let Some(turn) = self.turns.get_mut(&ticket) else {
            return Vec::new();
        };
        let has_waited = turn.waits();
        turn.since.get_or_insert(now);
        self.advance_after(has_waited, false)
    }

    /// Notes that a lease has found no permit free.
    pub(super) fn note_none_free(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.found_none = true;
        }
    }

    /// Makes a lease that has found no permit free the scout, unless there is one that counts with as many permits: it alone
    /// stands in the line of processes and watches all slots, for all requests of this process. Returns whether it is the scout.
    pub(super) fn make_scout(&mut self, ticket: Ticket) -> bool {
        let permits = |ticket| self.turns.get(ticket).map(|turn| turn.role.permits());
        if self.scout().is_none() || self.scout.as_ref().and_then(permits) < permits(&ticket) {
            self.scout = Some(ticket);
        }
        self.scout == Some(ticket)
    }

    /// Returns the scout, if there is one.
    pub(super) fn scout(&self) -> Option<&T> {
        let turn = self.turns.get(&self.scout?)?;
        turn.waits().then_some(&turn.holder)
    }

    /// Notes that a lease has found that no other process waits.
    pub(super) fn note_alone(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.found_none = false;
        }
    }

    /// Returns those that have a turn and have found no permit free, in order of arrival.
    pub(super) fn found_none(&self) -> impl Iterator<Item = &T> {
        let turns = self.turns.values().filter(|turn| turn.waits());
        turns.map(|turn| &turn.holder)
    }

    /// Returns those that ask for a permit, and have not found that none is free.
    pub(super) fn asking(&self) -> impl Iterator<Item = &T> {
        let turns = self.turns.values();
        let asking = turns.filter(|turn| turn.since.is_none() && !turn.found_none);
        asking.map(|turn| &turn.holder)
    }

    /// Returns whether the process holds the lock or a permit.
    pub(super) fn is_held(&self) -> bool {
        self.turns.values().any(|turn| turn.since.is_some())
    }

    /// Notes that a writer has become a reader.
    pub(super) fn note_downgrade(&mut self, ticket: Ticket) {
        if let Some(turn) = self.turns.get_mut(&ticket) {
            turn.role = Role::LoneReader;
        }
    }

    /// Ends a turn. Returns whether there was one, and whether it had found no permit free and still waited.
    pub(super) fn end_turn(&mut self, ticket: Ticket) -> (bool, bool) {
        let turn = self.turns.remove(&ticket);
        (turn.is_some(), turn.is_some_and(|turn| turn.waits()))
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
    /// first. After one that has waited for a permit, the next one goes to the end of the line of processes.
    pub(super) fn advance_after(&mut self, has_waited: bool, backs_off: bool) -> Vec<FollowUp<T>> {
        let most = if has_waited { 1 } else { usize::MAX };
        self.begin_while(most, has_waited || backs_off, Self::has_room)
    }

    /// Gives turns to waiters for so many permits that were seen free.
    pub(super) fn advance_by(&mut self, permits: usize) -> Vec<FollowUp<T>> {
        self.begin_while(permits, false, |line, _| line.has_place())
    }

    fn begin_while(
        &mut self,
        most: usize,
        backs_off: bool,
        has_room: impl Fn(&Self, Role) -> bool,
    ) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        while follow_ups.len() < most
            && let Some((ticket, (role, _))) = self.waiting.first()
            && let role = *role
            && has_room(self, role)
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
