//! The rules for readers that share a lease, and for writers beside them.

use std::sync::Arc;

use redlock_core::{Slot, Timestamp};

use super::{
    Client, Contender, ExtensionOutcome, HeldLease, LeaseCell,
    driving::carry_out,
    held_lease::Generation,
    stage::Stage,
    state::{CellState, Changes, HoldState},
    terms::LeaseRequest,
};

/// Lets a reader share the lease of others in its process, without a request to the nodes.
pub(super) fn join(client: &Client, now: Timestamp, request: &LeaseRequest) -> Option<HeldLease> {
    let lease = client.queue.open_turn(request.keys.first())?.into_lease()?;
    if !request.could_join(&lease.terms) {
        return None;
    }
    let generation = lease.update(now, |state| lease.admit(state, now))?;
    Some(HeldLease { lease, generation })
}

impl LeaseCell {
    /// Lets the readers in that waited for this lease, and others ask if they cannot share it.
    pub(super) fn tell_readers_and_writers(self: &Arc<Self>, now: Timestamp, changes: &Changes) {
        let (queue, key) = (&self.client.queue, self.keys.first());
        if changes.is_acquired {
            self.let_readers_in(now);
            carry_out(now, queue.note_hold(key, self.ticket, now)).wake_all();
        }
        if changes.departure.is_some()
            && let Some(lease) = queue.turn(key.as_bytes()).and_then(Contender::into_lease)
        {
            // A plain lock of this process. A server does not notify the connection that has made the change.
            lease.look_again(now, Slot::FIRST);
        }
    }

    fn let_readers_in(self: &Arc<Self>, now: Timestamp) {
        let (queue, key) = (&self.client.queue, self.keys.first());
        let fits = |next: &Contender| next.waiter().is_some_and(|next| next.could_join(self));
        let joined = self.update(now, |state| {
            let mut joined = Vec::new();
            while self.is_open(state, now)
                && let Some(next) = queue.next_to_join(key, self.ticket, fits)
                && let Some(generation) = self.admit(state, now)
            {
                let lease = Arc::clone(self);
                let held = HeldLease { lease, generation };
                match next.waiter().and_then(|next| next.serve(held)) {
                    Some(successor) => joined.push(successor),
                    // It has given up at this very moment.
                    None => _ = state.leave(now, generation),
                }
            }
            joined
        });
        for successor in joined {
            successor.wake();
        }
    }

    /// Adds a reader, if the lease is open. Returns its number.
    fn admit(&self, state: &mut CellState, now: Timestamp) -> Option<Generation> {
        self.is_open(state, now).then(|| state.join(now)).flatten()
    }

    /// Returns whether readers may join: the lock was acquired a short time ago, and there is time to work. Later readers ask
    /// the nodes, where a writer of another process may have come.
    fn is_open(&self, state: &CellState, now: Timestamp) -> bool {
        let Stage::Held(held) = state.stage() else {
            return false;
        };
        let is_new = now.saturating_duration_since(held.since) < self.terms.policy.streak;
        let valid_until = state.lease.valid_until(now).filter(|_| state.reads);
        let left = valid_until.map(|until| until.saturating_duration_since(now));
        is_new && left.is_some_and(|left| left >= self.own_ttl().as_duration() / 2)
    }

    /// Returns whether the lock may be turned into one of a reader.
    pub(crate) const fn is_writers(&self) -> bool {
        self.keys.is_to_write()
    }

    /// Returns whether the holder shares the lock with other readers of its process, and did not acquire it.
    pub(crate) fn is_readers(&self) -> bool {
        self.state().reads
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
        let ticket = lease.update(now, |state| state.downgrade(now, generation));
        let Some(ticket) = ticket else {
            let state = lease.state();
            return match state.hold_state(generation) {
                HoldState::Held if state.reads => ExtensionOutcome::Extended,
                HoldState::Held => ExtensionOutcome::MaxHold,
                HoldState::Lost(reason) => ExtensionOutcome::Lost(reason),
                HoldState::Released => ExtensionOutcome::Released,
            };
        };
        // The lock is shared with this process at once. Those that ask the nodes come behind the downgrade.
        let (queue, key) = (&lease.client.queue, lease.keys.first());
        queue.note_downgrade(key, lease.ticket);
        lease.let_readers_in(now);
        carry_out(now, queue.note_hold(key, lease.ticket, now)).wake_all();
        lease
            .wait_for(|state| state.extension_outcome(generation, ticket))
            .await
    }
}
