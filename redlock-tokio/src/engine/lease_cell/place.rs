//! The place of a request in its process: in the queues of its keys, or in the queue of what several may hold.

use std::sync::Arc;

use redlock_core::{Share, Timestamp};

use super::{LeaseCell, Terms};
use crate::{
    Key,
    engine::queue::{FollowUp, JoinOutcome, Queue, Refusal, Role, Succession, Ticket},
    key::KeySet,
    options::QueuePolicy,
};

#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    queue: &'a Queue<Arc<LeaseCell>>,
    keys: &'a KeySet,
    ticket: Ticket,
    /// `None` for a plain lock.
    role: Option<Role>,
}

impl<'a> Place<'a> {
    /// Creates the place of a request with these terms. A reader that may not wait asks the nodes itself, even if another
    /// one does.
    pub(super) fn new(
        queue: &'a Queue<Arc<LeaseCell>>,
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

    /// Takes the turn, or waits for it.
    pub(super) fn join(
        self,
        now: Timestamp,
        request: &Arc<LeaseCell>,
    ) -> Result<JoinOutcome, Refusal> {
        let (queue, ticket, policy) = (self.queue, self.ticket, &request.terms.policy);
        match self.role {
            Some(role) => queue.join_shared(self.key(), role, ticket, now, policy, request),
            None => queue.join(self.keys, ticket, now, policy, request),
        }
    }

    /// Leaves, after having held the lock since `held`, if at all.
    #[must_use]
    pub(super) fn leave(
        self,
        now: Timestamp,
        held: Option<Timestamp>,
        policy: &QueuePolicy,
    ) -> Vec<FollowUp<Arc<LeaseCell>>> {
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
        fits: impl FnOnce(&Arc<LeaseCell>) -> bool,
    ) -> Succession<Arc<LeaseCell>> {
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
    pub(super) fn note_hold(self, now: Timestamp) -> Vec<FollowUp<Arc<LeaseCell>>> {
        let note = |role| self.queue.note_hold(self.key(), role, self.ticket, now);
        self.role.map(note).unwrap_or_default()
    }

    /// Returns whether requests at these two places, which have a key in common, ask one after the other.
    pub(super) fn takes_turns_with(self, other: Self) -> bool {
        self.role.is_none() && other.role.is_none()
    }

    /// Returns what has a turn for the same semaphore, or the same lock of readers and writers.
    pub(super) fn turns_beside(self) -> Vec<Arc<LeaseCell>> {
        let turns = |role| self.queue.shared_turns(self.key(), role);
        self.role.map(turns).unwrap_or_default()
    }

    fn key(&self) -> &'a Key {
        self.keys.first()
    }
}
