//! A request that has asked no node: it waits for its turn, behind other requests of this process.

use std::{sync::Arc, task::Waker};

use redlock_core::{Share, Status, Timestamp};

use super::{
    Client, HeldLease, LeaseCell, RequestEnd, driving::carry_out, local::Local, read_write,
    state::CellState, terms::LeaseRequest,
};
use crate::{engine::queue::JoinOutcome, foreign, key::SlotKeys};

/// The holder that comes next, and its task.
pub(super) struct Successor {
    pub(super) label: Option<&'static str>,
    pub(super) waker: Option<Waker>,
}

/// Begins a request: asks the nodes, if no other request of this process has one of the keys. Otherwise waits in their queues.
///
/// # Errors
///
/// Fails if the request may not wait.
pub(crate) fn begin(
    client: &Arc<Client>,
    now: Timestamp,
    request: &LeaseRequest,
) -> Result<HeldLease, (Arc<LeaseCell>, RequestEnd)> {
    if request.keys.share() == Share::Reader
        && let Some(held) = read_write::join(client, now, request)
    {
        return Ok(held);
    }
    let deadline = now.saturating_add(request.terms.policy.wait);
    // Made before it is known whether it waits, so that the lock of the queue is short.
    let lease = LeaseCell::new(client, request, deadline);
    let policy = &request.terms.policy;
    match client.queue.join(lease.place(), now, policy, &lease) {
        Ok(JoinOutcome::Turn { backs_off }) => {
            lease.update(now, |state| lease.begin(state, now, backs_off));
        }
        Ok(JoinOutcome::Waiting { look_at }) => {
            let until = look_at.map_or(deadline, |at| at.min(deadline));
            lease.wait(now, until);
        }
        Err(refusal) => return Err((lease, RequestEnd::Refused(refusal))),
    }
    Ok(HeldLease::first(lease))
}

impl LeaseCell {
    /// Waits for its turn. Nothing else follows from that, so it is no [update](Self::update), unless the timers have ended.
    fn wait(self: &Arc<Self>, now: Timestamp, until: Timestamp) {
        let scheduled = {
            let mut state = self.state();
            state.wait_until(until);
            self.reschedule(&mut state)
        };
        if scheduled.is_err() {
            self.update(now, |state| state.lease.abandon());
        }
    }

    /// Returns whether the lock of another request, which is handed over, would do for this one. It has one key, or one slot of as
    /// many permits as this request counts with.
    pub(super) fn could_take_over(&self, lease: &Self) -> bool {
        let permits = |it: &Self| it.keys.slots().map(SlotKeys::permits);
        self.terms.hands_over()
            && !self.keys.has_several()
            && permits(self) == permits(lease)
            && self.terms.fits(&lease.terms)
    }

    /// Ends the wait with the lock of another request. Returns `None` if this one does not wait any more. The queue has removed
    /// it already.
    pub(super) fn serve(&self, now: Timestamp, held: HeldLease) -> Option<Successor> {
        self.state().serve(now, held)
    }

    /// Does what is due while the request waits for its turn. Returns whether its keys may have been kept for another one until
    /// now.
    pub(super) fn check_wait(&self, state: &mut CellState, now: Timestamp) -> bool {
        let Some(due) = state.look_at() else {
            return false;
        };
        let is_over = self.deadline <= now;
        if is_over {
            state.give_up(now, Local::WaitIsOver);
        } else if due <= now {
            state.look_again_at(self.deadline);
        }
        !is_over && due <= now
    }

    /// Asks the queue again for keys that may have been kept for another request.
    pub(super) fn look_again(&self, now: Timestamp) {
        let follow_ups = self.client.queue.look_again(&self.keys, now);
        carry_out(now, follow_ups);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state().lease.status() == Status::New
    }
}

impl Successor {
    /// Wakes the task. Call this outside all locks.
    pub(super) fn wake(self) {
        if let Some(waker) = self.waker {
            foreign::call(|| waker.wake());
        }
    }
}
