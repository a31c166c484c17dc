//! The place of a request in its process: in the queues of its keys, or in the queue of its semaphore.

use redlock_core::Timestamp;

use super::Contender;
use crate::{
    Key,
    engine::queue::{Entry, FollowUp, JoinOutcome, Queue, Refused, Ticket},
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
        match self.keys.slots() {
            None => self.queue.join(self.keys, self.ticket, now, policy, enter),
            Some(slots) => {
                let (key, permits) = (self.keys.first(), slots.permits());
                self.queue
                    .join_semaphore(key, permits, self.ticket, now, policy, enter)
            }
        }
    }

    /// Puts a lease in the place of the waiter that has got the turn.
    pub(super) fn replace_turn(self, holder: &Contender) {
        match self.keys.slots() {
            None => self.queue.replace_turn(self.keys, self.ticket, holder),
            Some(_) => self
                .queue
                .replace_permit_turn(self.key(), self.ticket, holder),
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
        match self.keys.slots() {
            None => self.queue.leave(self.keys, self.ticket, now, held, policy),
            Some(_) => self
                .queue
                .leave_semaphore(self.key(), self.ticket, now, held, policy),
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
        match self.keys.slots() {
            None => self.queue.successor(self.key(), now, held, policy, fits),
            Some(_) => self
                .queue
                .next_for_permit(self.key(), self.ticket, now, policy, fits),
        }
    }

    fn key(&self) -> &Key {
        self.keys.first()
    }
}
