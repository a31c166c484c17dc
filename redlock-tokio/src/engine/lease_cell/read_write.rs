//! The rules for readers that share a lease, and for writers beside them.
//!
//! One reader at a time asks the nodes. Readers that arrive before its answer wait for it, and then share its lease. The lease
//! is open for others for `handover_for` after it was acquired, while at least half of its ttl is left and nobody waits in the queue. Each reader
//! is a generation of its own, and the last of them releases the lock. One writer at a time asks the nodes, beside the readers of
//! its process that hold the lock, so that its mark keeps out those of other processes.

use std::sync::Arc;

use redlock_core::{Share, Timestamp};

use super::{
    Client, ExtensionOutcome, HeldLease, LeaseCell, Terms,
    driving::carry_out,
    held_lease::Generation,
    state::{CellState, HoldState},
    terms::LeaseRequest,
};
use crate::key::KeySet;

/// Lets a reader share the lease of others in its process, without a request to the nodes.
pub(super) fn join(client: &Client, now: Timestamp, request: &LeaseRequest) -> Option<HeldLease> {
    let lease = client.queue.open_turn(request.keys.first())?;
    if !lease.lets_in(&request.keys, &request.terms) {
        return None;
    }
    let generation = lease.update(now, |state| lease.admit(state, now))?;
    Some(HeldLease { lease, generation })
}

impl LeaseCell {
    /// Shares the lock with waiting readers, if it is one of a reader.
    pub(super) fn let_readers_in(self: &Arc<Self>, now: Timestamp) {
        if !self.is_reader() {
            return;
        }
        let (queue, key) = (&self.client.queue, self.keys.first());
        let fits = |next: &Arc<Self>| self.lets_in(&next.keys, &next.terms);
        let joined = self.update(now, |state| {
            let mut joined = Vec::new();
            while self.is_open(state, now)
                && let Some(next) = queue.take_next_to_join(key, self.arrival, fits)
                && let Some(generation) = state.join(now)
            {
                let lease = Arc::clone(self);
                let held = HeldLease { lease, generation };
                match next.serve(now, held) {
                    Some(successor) => joined.push(successor),
                    // It has given up at this very moment.
                    None => _ = state.end_hold(now, generation),
                }
            }
            joined
        });
        for successor in joined {
            successor.wake();
        }
    }

    /// Returns whether a reader with these terms could share the lock, which other readers of this process hold.
    fn lets_in(&self, keys: &KeySet, terms: &Arc<Terms>) -> bool {
        keys.share() == Share::Reader
            && terms.policy.hands_over
            && self.terms.policy.hands_over
            && terms.fits(&self.terms)
    }

    /// Adds a reader, if the lease is open. Returns its number.
    fn admit(&self, state: &mut CellState, now: Timestamp) -> Option<Generation> {
        self.is_open(state, now).then(|| state.join(now)).flatten()
    }

    /// Returns whether readers may join: the lock was acquired a short time ago, and there is time to work. Later readers ask
    /// the nodes, where a writer of another process may have come.
    fn is_open(&self, state: &CellState, now: Timestamp) -> bool {
        let Some(held) = state.held() else {
            return false;
        };
        let is_new = now.saturating_duration_since(held.since) < self.terms.policy.streak;
        let valid_until = state
            .lease
            .valid_until(now)
            .filter(|_| state.lease.is_reader());
        let left = valid_until.map(|until| until.saturating_duration_since(now));
        is_new && left.is_some_and(|left| left >= self.own_ttl().as_duration() / 2)
    }

    pub(super) fn is_reader_or_writer(&self) -> bool {
        matches!(self.keys.share(), Share::Reader | Share::Writer)
    }

    /// Returns whether a writer acquired the lock.
    pub(crate) fn is_writer(&self) -> bool {
        self.keys.share() == Share::Writer
    }

    /// Returns whether the lock has one key, which nobody shares.
    pub(crate) fn has_one_owner(&self) -> bool {
        let is_alone = matches!(self.keys.share(), Share::Exclusive | Share::Writer);
        is_alone && !self.keys.has_several() && !self.is_reader()
    }

    /// Returns whether the lock is one of a reader, or of a writer that was downgraded.
    pub(crate) fn is_reader(&self) -> bool {
        self.state().lease.is_reader()
    }
}

impl HeldLease {
    /// Turns the lock of a writer into one of a reader.
    ///
    /// # Cancel safety
    ///
    /// A downgrade that was started goes on without its caller.
    pub(crate) async fn downgrade(&self) -> ExtensionOutcome {
        let (lease, generation) = (&self.lease, self.generation);
        let now = lease.now();
        let extension = lease.update(now, |state| state.downgrade(now, generation));
        if extension.is_some() {
            // The lock is shared with this process at once. A reader that asks the nodes does so after the downgrade.
            let queue = &lease.client.queue;
            queue.note_downgrade(lease.keys.first(), lease.arrival);
            lease.let_readers_in(now);
            carry_out(now, queue.note_hold(lease.place(), now));
        } else if lease.is_reader() && lease.state().hold_state(generation) == HoldState::Held {
            return ExtensionOutcome::Extended;
        }
        lease
            .wait_for(|state| state.extension_outcome(generation, extension))
            .await
    }
}
