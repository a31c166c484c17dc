//! Locks that are given away to other processes, and those that were adopted from others.

use std::sync::Arc;

use redlock_core::{FencingToken, Timestamp};

use super::{Client, HeldLease, LeaseCell, LeaseRequest, LockTicket, state::CellState};
use crate::node::Holder;

impl HeldLease {
    /// Gives the lock away, without a release. `None` if it is not held any more.
    pub(crate) fn give(&self) -> Option<LockTicket> {
        let lease = &self.lease;
        let client = lease.client();
        // Read before the other clock, so that a pause between the two makes the time shorter and not longer.
        let wall = client.wall_clock.since_1970();
        let now = lease.now();
        let valid_until = lease.update(now, |state| state.give(now, self.generation))?;
        let left = valid_until.saturating_duration_since(now);
        let value = client.lines.client_name.value_of(lease.token());
        Some(LockTicket {
            key: lease.keys().first().clone(),
            giver: Holder::new(&value[..]),
            until: wall.saturating_add(left),
            fence: lease.fence(),
        })
    }
}

/// Asks the nodes for a lock that was given away.
pub(crate) fn adopt(
    client: &Arc<Client>,
    ticket: &LockTicket,
    request: &LeaseRequest,
) -> HeldLease {
    // Redlock step 1, and before the wall clock for the same reason as above.
    let now = client.clock.now();
    let left = ticket.until.saturating_sub(client.wall_clock.since_1970());
    let until = now.saturating_add(left);
    let lease = LeaseCell::new(client, request, until);
    // It does not wait. In the queue, others wait for it, and it is told of what they do with its key.
    let policy = &request.terms.policy;
    let _ = client.queue.join(lease.place(), now, policy, &lease);
    lease.update(now, |state| {
        lease.begin_adoption(state, now, ticket.fence);
    });
    // The shutdown may have begun before the lease had a deadline.
    if client.is_shut_down() {
        lease.stop_acquiring();
    }
    HeldLease::first(lease)
}

impl LeaseCell {
    fn begin_adoption(&self, state: &mut CellState, now: Timestamp, fence: Option<FencingToken>) {
        let giver = self.terms.adopts_from.as_ref().and_then(Holder::token);
        let Some(giver) = giver.filter(|_| self.enter_acquiring(state, now)) else {
            return;
        };
        let proposal = self.terms.fenced.then(|| {
            let by_clock = self.client.wall_clock.propose(&self.client.clock, now);
            let next = fence.and_then(FencingToken::next);
            next.map_or(by_clock, |next| next.max(by_clock))
        });
        state.lease.adopt(now, giver, self.deadline, proposal);
    }
}
