//! Locks that are given away to other processes, and those that were adopted from others.

use std::sync::Arc;

use redlock_core::{FencingToken, Timestamp};

use super::{Client, Cx, Handle, HeldLease, LeaseRequest, LockTicket, request::Request};
use crate::node::Holder;

impl HeldLease {
    /// Gives the lock away, without a release. `None` if it is not held any more.
    pub(crate) fn give(&self) -> Option<LockTicket> {
        let client = self.handle.client();
        // Read before the other clock, so that a pause between the two makes the time shorter and not longer.
        let wall = client.wall_clock.since_1970();
        let now = self.handle.now();
        let valid_until = self.update(now, |_, _, it| it.give(now, self.generation))?;
        let left = valid_until.saturating_duration_since(now);
        let value = client.client_name.value_of(self.handle.token());
        Some(LockTicket {
            key: self.handle.keys().first().clone(),
            giver: Holder::new(&value[..]),
            until: wall.saturating_add(left),
            fence: self.handle.fence(),
        })
    }
}

/// Asks the nodes for a lock that was given away.
pub(crate) fn adopt(client: &Arc<Client>, ticket: &LockTicket, wanted: &LeaseRequest) -> HeldLease {
    client.wall_clock.note(&client.clock);
    // Redlock step 1, and before the wall clock for the same reason as above.
    let now = client.clock.now();
    let left = ticket.until.saturating_sub(client.wall_clock.since_1970());
    let until = now.saturating_add(left);
    let handle = client.change(now, |engine, cx| {
        let request = engine.create(cx, wanted, until);
        let handle = Handle::first(client, &request);
        // It does not wait. In the queue, others wait for it, and it is told of what they do with its key.
        let policy = &wanted.terms.policy;
        let _ = engine.queue.join(request.place(), now, policy, &request.id);
        engine.put_back(request);
        engine.update(cx, handle.id, |_, request| {
            request.begin_adoption(cx, ticket.fence);
        });
        handle
    });
    // The shutdown may have begun before the lease had a deadline.
    if client.is_shut_down() {
        handle.stop_acquiring();
    }
    HeldLease::first(handle)
}

impl Request {
    fn begin_adoption(&mut self, cx: Cx<'_>, fence: Option<FencingToken>) {
        let giver = self.terms.adopts_from.as_ref().and_then(Holder::token);
        let Some(giver) = giver.filter(|_| self.enter_acquiring(cx)) else {
            return;
        };
        let proposal = self.terms.fenced.then(|| {
            let by_clock = cx.client.wall_clock.propose(cx.now);
            let next = fence.and_then(FencingToken::next);
            next.map_or(by_clock, |next| next.max(by_clock))
        });
        let deadline: Timestamp = self.deadline;
        self.lease.adopt(cx.now, giver, deadline, proposal);
    }
}
