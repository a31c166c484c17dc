//! The place of a request in its process: in the queues of its keys, or in the queue of what several may hold.

use redlock_core::{Share, Timestamp};

use super::{Contender, Terms};
use crate::{
    Key,
    engine::queue::{Entry, FollowUp, JoinOutcome, Queue, Refusal, Role, Succession, Ticket},
    key::KeySet,
    options::QueuePolicy,
};

#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    queue: &'a Queue<Contender>,
    keys: &'a KeySet,
    ticket: Ticket,
    /// `None` for a plain lock.
    role: Option<Role>,
}

impl<'a> Place<'a> {
    /// Creates the place of a request with these terms. A reader that may not wait asks the nodes itself, even if another
    /// one does.
    pub(super) fn new(
        queue: &'a Queue<Contender>,
        keys: &'a KeySet,
        ticket: Ticket,
        terms: &Terms,
    ) -> Self {
        let policy = &terms.policy;
        let joins = policy.hands_over && !policy.streak.is_zero() && !policy.wait.is_zero();
        let role = match keys.share() {
            _ if terms.adopts_from.is_some() => Some(Role::Adopter),
            Share::Permit(permits) => Some(Role::Permit(permits)),
            Share::Reader if joins => Some(Role::Reader),
            Share::Reader => Some(Role::LoneReader),
            Share::Writer => Some(Role::Writer),
            _ => None,
        };
        Self {
            queue,
            keys,
            ticket,
            role,
        }
    }

    /// Takes the turn, or waits for it. `enter` makes what has the turn, or waits.
    pub(super) fn join(
        self,
        now: Timestamp,
        policy: &QueuePolicy,
        enter: impl FnOnce(Entry) -> Contender,
    ) -> Result<JoinOutcome, Refusal> {
        let (queue, ticket) = (self.queue, self.ticket);
        match self.role {
            Some(role) => queue.join_shared(self.key(), role, ticket, now, policy, enter),
            None => queue.join(self.keys, ticket, now, policy, enter),
        }
    }

    /// Puts a lease in the place of the waiter that has got the turn.
    pub(super) fn replace_turn(self, holder: &Contender) {
        let (queue, ticket) = (self.queue, self.ticket);
        match self.role {
            Some(role) => queue.replace_shared_turn(self.key(), role, ticket, holder),
            None => queue.replace_turn(self.keys, ticket, holder),
        }
    }

    /// Leaves, after having held the lock since `held`, if at all.
    #[must_use]
    pub(super) fn leave(
        self,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<Contender>> {
        let (queue, ticket) = (self.queue, self.ticket);
        match self.role {
            Some(role) => queue.leave_shared(self.key(), role, ticket, now, held, policy),
            None => queue.leave(self.keys, ticket, now, held, policy),
        }
    }

    /// Removes the waiter to which the holder since `held` may hand over its lock.
    pub(super) fn successor(
        self,
        now: Timestamp,
        held: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&Contender) -> bool,
    ) -> Succession<Contender> {
        let (queue, key) = (self.queue, self.key());
        match self.role {
            Some(role) => queue
                .shared_successor(key, role, self.ticket, now, policy, fits)
                .map_or(Succession::Nobody, |waiter| Succession::Next {
                    waiter,
                    is_late: false,
                }),
            None => queue.successor(key, now, held, policy, fits),
        }
    }

    /// Notes that the lock was acquired. Others that may share it ask now.
    #[must_use]
    pub(super) fn note_hold(self, now: Timestamp) -> Vec<FollowUp<Contender>> {
        let note = |role| self.queue.note_hold(self.key(), role, self.ticket, now);
        self.role.map(note).unwrap_or_default()
    }

    /// Returns whether requests at these two places, which have a key in common, ask one after the other.
    pub(super) fn takes_turns_with(self, other: Self) -> bool {
        self.role.is_none() && other.role.is_none()
    }

    /// Returns what has a turn for the same semaphore, or the same lock of readers and writers.
    pub(super) fn turns_beside(self) -> Vec<Contender> {
        let turns = |role| self.queue.shared_turns(self.key(), role);
        self.role.map(turns).unwrap_or_default()
    }

    fn key(&self) -> &'a Key {
        self.keys.first()
    }
}
