use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::Timestamp;

use super::{
    Ticket,
    past::{HoldTimes, Past, Streak},
};
use crate::options::QueuePolicy;

/// The waiters for one key within this process, and the lease that has the turn. That lease contends with other
/// processes for the lock, and then holds it.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    turn: Option<(Ticket, T)>,
    /// The waiters for this key alone.
    single: BTreeMap<Ticket, T>,
    /// The waiters for this key and others.
    several: BTreeSet<Ticket>,
    expired: Option<Expired>,
    /// No waiter may reserve the key until then.
    open_until: Timestamp,
    streak: Option<Streak>,
    holds: HoldTimes,
    /// When the time to wait is over for all that have joined.
    gone_by: Timestamp,
}

/// The consequence of the end of a turn for the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnEnd {
    /// Whether to let other processes go first.
    pub(super) next_backs_off: bool,
}

/// A reservation that has expired.
#[derive(Clone, Copy, Debug)]
struct Expired {
    reserver: Ticket,
    /// The last of the waiters that may pass.
    last: Ticket,
}

impl<T> WaitQueue<T> {
    pub(super) fn new(Past { streak, holds }: Past) -> Self {
        Self {
            turn: None,
            single: BTreeMap::new(),
            several: BTreeSet::new(),
            expired: None,
            open_until: Timestamp::ZERO,
            streak,
            holds,
            gone_by: Timestamp::ZERO,
        }
    }

    pub(super) fn give_turn(&mut self, ticket: Ticket, waiter: T) {
        self.turn = Some((ticket, waiter));
    }

    /// Puts another in the place of what has the turn with this ticket.
    pub(super) fn replace_turn(&mut self, ticket: Ticket, holder: &T)
    where
        T: Clone,
    {
        if let Some((_, turn)) = self.turn.as_mut().filter(|(has, _)| *has == ticket) {
            turn.clone_from(holder);
        }
    }

    /// Ends the turn of a lease that has held the lock since `held`, if at all. Returns `None` if it does not have
    /// the turn.
    pub(super) fn end_turn(
        &mut self,
        ticket: Ticket,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Option<TurnEnd> {
        self.turn.take_if(|(has, _)| *has == ticket)?;
        let Some(held) = held else {
            // Another process may have had the lock meanwhile.
            self.streak = None;
            return Some(TurnEnd {
                next_backs_off: false,
            });
        };
        self.note_hold(now, held);
        let next_backs_off = !self.streak(held).may_go_on(now, policy);
        if next_backs_off && self.waiting() > 0 {
            self.streak = None;
        }
        Some(TurnEnd { next_backs_off })
    }

    /// Adds a waiter for this key alone. It waits until `until` at most.
    pub(super) fn push(&mut self, ticket: Ticket, waiter: T, until: Timestamp) {
        self.single.insert(ticket, waiter);
        self.gone_by = self.gone_by.max(until);
    }

    /// Adds a waiter for this key and others. It waits until `until` at most.
    pub(super) fn push_several(&mut self, ticket: Ticket, until: Timestamp) {
        self.several.insert(ticket);
        self.gone_by = self.gone_by.max(until);
    }

    /// Removes the first waiter for this key alone.
    pub(super) fn pop(&mut self) -> Option<(Ticket, T)> {
        self.single.pop_first()
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        self.single.remove(&ticket).is_some() || self.several.remove(&ticket)
    }

    /// Lets the waiters of this moment pass a reservation.
    pub(super) fn let_pass(&mut self, reserver: Ticket) {
        let single = self.single.last_key_value().map(|(ticket, _)| *ticket);
        let last = single.max(self.several.last().copied());
        self.expired = last.map(|last| Expired { reserver, last });
    }

    /// Lets no waiter reserve the key before `until`.
    pub(super) fn open(&mut self, until: Timestamp) {
        self.open_until = self.open_until.max(until);
    }

    /// Returns whether no waiter may reserve the key now.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        now < self.open_until
    }

    /// Returns the first waiter, for this key alone or for this key and others.
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

    /// Returns whether a reservation lets a ticket pass.
    pub(super) fn lets_pass(&self, reserver: Ticket, ticket: Ticket) -> bool {
        let expired = self.expired.filter(|expired| expired.reserver == reserver);
        expired.is_some_and(|expired| ticket <= expired.last)
    }

    /// Returns whether the holder since `held` may hand the lock over.
    pub(super) fn may_hand_over(
        &mut self,
        held: Timestamp,
        now: Timestamp,
        policy: &QueuePolicy,
    ) -> bool {
        self.streak(held).may_go_on(now, policy)
    }

    pub(super) fn note_handover(&mut self, held: Timestamp, now: Timestamp) {
        self.streak(held);
        self.note_hold(now, held);
    }

    pub(super) fn turn(&self) -> Option<&T> {
        self.ticket_and_turn().map(|(_, waiter)| waiter)
    }

    /// Returns the lease that has the turn, and its ticket.
    pub(super) fn ticket_and_turn(&self) -> Option<(Ticket, &T)> {
        self.turn.as_ref().map(|(ticket, waiter)| (*ticket, waiter))
    }

    pub(super) fn waiting(&self) -> usize {
        self.single.len() + self.several.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turn.is_none() && self.waiting() == 0
    }

    /// Returns how long a lease that joined now would wait, if each hold takes as long as the median of the last ones.
    /// It cannot be longer than the waiters in front have time to wait.
    pub(super) fn expected_wait(&self, now: Timestamp) -> Option<Duration> {
        let ahead = count(1 + self.waiting());
        let expected = self.holds.median()?.saturating_mul(ahead);
        if self.waiting() == 0 {
            return Some(expected);
        }
        Some(expected.min(self.gone_by.saturating_duration_since(now)))
    }

    /// Returns what to remember when the queue is empty.
    pub(super) fn past(&self) -> Past {
        Past {
            streak: self.streak,
            holds: self.holds,
        }
    }

    fn streak(&mut self, held: Timestamp) -> &mut Streak {
        self.streak.get_or_insert(Streak::new(held))
    }

    fn note_hold(&mut self, now: Timestamp, held: Timestamp) {
        self.holds.note(now.saturating_duration_since(held));
    }
}

fn count(waiters: usize) -> u32 {
    u32::try_from(waiters).unwrap_or(u32::MAX)
}
