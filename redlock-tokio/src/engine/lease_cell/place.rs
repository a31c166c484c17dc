//! The place of a request in its process: in the queues of its keys, or in the queue of its semaphore.

use redlock_core::{Share, Timestamp};

use super::Contender;
use crate::{
    Key,
    engine::queue::{Entry, FollowUp, JoinOutcome, Queue, Refused, Role, Ticket},
    key::KeySet,
    options::QueuePolicy,
};

#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) queue: &'a Queue<Contender>,
    pub(super) keys: &'a KeySet,
    pub(super) ticket: Ticket,
}

impl Place<'_> {
    /// Takes the turn, or waits for it. `enter` makes what has the turn, or waits.
    pub(super) fn join(
        self,
        now: Timestamp,
        policy: &QueuePolicy,
        enter: impl FnOnce(Entry) -> Contender,
    ) -> Result<JoinOutcome<Contender>, Refused<Contender>> {
        let (queue, key, ticket) = (self.queue, self.key(), self.ticket);
        match self.keys.share() {
            Share::Permit(permits) => {
                queue.join_semaphore(key, permits, ticket, now, policy, enter)
            }
            Share::Reader | Share::Writer => {
                let role = self.role(policy);
                queue.join_readers_or_writers(key, role, ticket, now, policy, enter)
            }
            _ => queue.join(self.keys, ticket, now, policy, enter),
        }
    }

    /// Puts a lease in the place of the waiter that has got the turn.
    pub(super) fn replace_turn(self, holder: &Contender) {
        let (queue, key, ticket) = (self.queue, self.key(), self.ticket);
        match self.keys.share() {
            Share::Permit(_) => queue.replace_permit_turn(key, ticket, holder),
            Share::Reader | Share::Writer => queue.replace_read_write_turn(key, ticket, holder),
            _ => queue.replace_turn(self.keys, ticket, holder),
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
        let (queue, key, ticket) = (self.queue, self.key(), self.ticket);
        match self.keys.share() {
            Share::Permit(_) => queue.leave_semaphore(key, ticket, now, held, policy),
            Share::Reader | Share::Writer => {
                let role = self.role(policy);
                queue.leave_readers_or_writers(key, role, ticket, now, held, policy)
            }
            _ => queue.leave(self.keys, ticket, now, held, policy),
        }
    }

    /// Removes the waiter to which the holder since `held` may hand over its lock.
    pub(super) fn successor(
        self,
        now: Timestamp,
        held: Timestamp,
        policy: &QueuePolicy,
        fits: impl FnOnce(&Contender) -> bool,
    ) -> Option<Contender> {
        let (queue, key, ticket) = (self.queue, self.key(), self.ticket);
        match self.keys.share() {
            Share::Permit(_) => queue.next_for_permit(key, ticket, now, policy, fits),
            Share::Reader | Share::Writer => queue.next_writer(key, ticket, now, policy, fits),
            _ => queue.successor(key, now, held, policy, fits),
        }
    }

    /// Returns what a reader or a writer wants. A reader that may not wait asks the nodes itself, even if another one does.
    fn role(self, policy: &QueuePolicy) -> Role {
        let joins = policy.hands_over && !policy.streak.is_zero() && !policy.wait.is_zero();
        match (self.keys.is_to_write(), joins) {
            (true, _) => Role::Writer,
            (false, true) => Role::Reader,
            (false, false) => Role::LoneReader,
        }
    }

    fn key(&self) -> &Key {
        self.keys.first()
    }
}
