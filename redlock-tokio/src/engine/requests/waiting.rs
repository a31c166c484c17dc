//! A request that has asked no node: it waits for its turn, behind other requests of this process.

use std::{sync::Arc, task::Waker};

use redlock_core::{Lease, Nonce, Share, Timestamp};

use super::{
    Client, Cx, Engine, Handle, HeldLease, RequestEnd, local::Local, request::Request,
    terms::LeaseRequest,
};
use crate::{
    engine::queue::{JoinOutcome, Pace},
    key::SlotKeys,
};

/// The holder that comes next, and its task.
pub(super) struct Successor {
    pub(super) label: Option<&'static str>,
    pub(super) waker: Option<Waker>,
}

/// Begins a request: asks the nodes, if no other request of this process has one of the keys. Otherwise waits in their queues.
/// Also returns whether the task has to wait until it is woken.
///
/// # Errors
///
/// Fails if the request may not wait.
pub(crate) fn begin(
    client: &Arc<Client>,
    now: Timestamp,
    request: &LeaseRequest,
    waker: &Waker,
) -> Result<(HeldLease, bool), (Handle, RequestEnd)> {
    if request.terms.fenced {
        // With code of the user.
        client.wall_clock.note(&client.clock);
    }
    // Cloned and dropped outside of the mutex.
    let mut waker = waker.clone();
    client.change(now, |engine, cx| {
        let held = engine.lock(cx, request)?;
        let request = engine.get_mut(held.handle.id);
        let has_to_wait = request.is_some_and(|it| it.poll_acquired(&mut waker).is_pending());
        Ok((held, has_to_wait))
    })
}

impl Engine {
    fn lock(
        &mut self,
        cx: Cx<'_>,
        wanted: &LeaseRequest,
    ) -> Result<HeldLease, (Handle, RequestEnd)> {
        if wanted.keys.share() == Share::Reader
            && let Some(held) = self.join(cx, wanted)
        {
            return Ok(held);
        }
        let deadline = cx.now.saturating_add(wanted.terms.policy.wait);
        let mut request = self.create(cx, wanted, deadline);
        let handle = Handle::first(cx.client, &request);
        let policy = &wanted.terms.policy;
        let joined = self
            .queue
            .join(request.place(), cx.now, policy, &request.id);
        let outcome = match joined {
            Ok(JoinOutcome::Turn { backs_off }) => {
                let id = request.id;
                self.put_back(request);
                self.update(cx, id, |engine, request| {
                    engine.begin(cx, request, backs_off);
                });
                return Ok(HeldLease::first(handle));
            }
            Ok(JoinOutcome::Waiting { look_at }) => {
                request.look_again_at(look_at.map_or(deadline, |at| at.min(deadline)));
                Ok(())
            }
            Err(refusal) => {
                request.give_up(cx.now, Local::Nothing);
                Err(RequestEnd::Refused(refusal))
            }
        };
        // Nothing else follows from a wait.
        self.reschedule(&mut request);
        self.put_back(request);
        match outcome {
            Ok(()) => Ok(HeldLease::first(handle)),
            Err(end) => Err((handle, end)),
        }
    }

    /// Creates a request that has asked no node. It is to be put back.
    pub(super) fn create(
        &mut self,
        cx: Cx<'_>,
        wanted: &LeaseRequest,
        deadline: Timestamp,
    ) -> Box<Request> {
        // Its tokens are drawn when it begins. A lock that is handed over needs none.
        let lease = Lease::new(Arc::clone(&wanted.terms.config), Nonce::new(0));
        self.insert(cx, |id, arrival| {
            Request::new((id, arrival), lease, wanted, deadline)
        })
    }

    /// Does what is due while a request waits for its turn. Its keys may have been kept for another one until now.
    pub(super) fn check_wait(&mut self, cx: Cx<'_>, request: &mut Request) {
        let Some(due) = request.look_at() else {
            return;
        };
        if request.deadline <= cx.now {
            request.give_up(cx.now, Local::WaitIsOver);
        } else if due <= cx.now {
            request.look_again_at(request.deadline);
            self.begin_next(cx, request, Pace::ALL);
        }
    }
}

impl Request {
    /// Returns whether the lock of another request, which is handed over, would do for this one. It has one key, or one slot of as
    /// many permits as this request counts with.
    pub(super) fn could_take_over(&self, lease: &Self) -> bool {
        let permits = |it: &Self| it.keys.slots().map(SlotKeys::permits);
        self.terms.hands_over()
            && !self.keys.has_several()
            && permits(self) == permits(lease)
            && self.terms.fits(&lease.terms)
    }
}
