//! The rules for readers that share a lease, and for writers beside them.
//!
//! One reader at a time asks the nodes. Readers that arrive before its answer wait for it, and then share its lease. The lease
//! is open for others for `handover_for` after it was acquired, while at least half of its ttl is left and nobody waits in the queue. Each reader
//! is a generation of its own, and the last of them releases the lock. One writer at a time asks the nodes, beside the readers of
//! its process that hold the lock, so that its mark keeps out those of other processes.

use std::sync::Arc;

use redlock_core::{Share, Timestamp};

use super::{
    Cx, Engine, ExtensionOutcome, Handle, HeldLease, RequestId, Terms,
    request::{HoldState, Request},
    terms::LeaseRequest,
};
use crate::key::KeySet;

impl Engine {
    /// Lets a reader share the lease of others in its process, without a request to the nodes.
    pub(super) fn join(&mut self, cx: Cx<'_>, wanted: &LeaseRequest) -> Option<HeldLease> {
        let id = self.queue.open_turn(wanted.keys.first())?;
        self.update(cx, id, |_, request| {
            let fits = request.lets_in(&wanted.keys, &wanted.terms) && request.is_open(cx.now);
            let generation = fits.then(|| request.join(cx.now)).flatten()?;
            request.handles += 1;
            Some(HeldLease {
                handle: Handle::first(cx.client, request),
                generation,
            })
        })?
    }

    /// Shares the lock with waiting readers, if it is one of a reader.
    pub(super) fn let_readers_in(&mut self, cx: Cx<'_>, id: RequestId) {
        self.update(cx, id, |engine, request| {
            if !request.lease.is_reader() {
                return;
            }
            while request.is_open(cx.now)
                && let Some(next) = engine.next_to_join(request)
                && let Some(generation) = request.join(cx.now)
            {
                let served = (request.id, generation);
                let next = engine.get_mut(next).and_then(|it| it.serve(cx.now, served));
                match next {
                    Some(successor) => {
                        request.handles += 1;
                        engine.wake(successor);
                    }
                    // It does not wait any more.
                    None => _ = request.end_hold(cx.now, generation),
                }
            }
        });
    }

    fn next_to_join(&mut self, request: &Request) -> Option<RequestId> {
        let Self {
            queue, requests, ..
        } = self;
        queue.take_next_to_join(request.keys.first(), request.arrival, |next| {
            let next = requests.get(next.place as usize).and_then(Option::as_deref);
            next.is_some_and(|next| request.lets_in(&next.keys, &next.terms))
        })
    }
}

impl Request {
    /// Returns whether a reader with these terms could share the lock, which other readers of this process hold.
    fn lets_in(&self, keys: &KeySet, terms: &Arc<Terms>) -> bool {
        keys.share() == Share::Reader
            && terms.policy.hands_over
            && self.terms.policy.hands_over
            && terms.fits(&self.terms)
    }

    /// Returns whether readers may join: the lock was acquired a short time ago, and there is time to work. Later readers ask
    /// the nodes, where a writer of another process may have come.
    fn is_open(&self, now: Timestamp) -> bool {
        let Some(held) = self.held() else {
            return false;
        };
        let is_new = now.saturating_duration_since(held.since) < self.terms.policy.streak;
        let valid_until = self.lease.valid_until(now);
        let valid_until = valid_until.filter(|_| self.lease.is_reader());
        let left = valid_until.map(|until| until.saturating_duration_since(now));
        let ttl = self.terms.config.validity.ttl().as_duration();
        is_new && left.is_some_and(|left| left >= ttl / 2)
    }
}

impl HeldLease {
    /// Turns the lock of a writer into one of a reader.
    ///
    /// # Cancel safety
    ///
    /// A downgrade that was started goes on without its caller.
    pub(crate) async fn downgrade(&self) -> ExtensionOutcome {
        let Handle { client, id, .. } = &self.handle;
        let (now, generation) = (self.handle.now(), self.generation);
        let extension = self.update(now, |_, _, it| it.downgrade(now, generation));
        if extension.is_some() {
            // The lock is shared with this process at once. A reader that asks the nodes does so after the downgrade.
            client.change(now, |engine, cx| {
                engine.update(cx, *id, |engine, it| {
                    engine.queue.note_downgrade(it.keys.first(), it.arrival);
                });
                engine.let_readers_in(cx, *id);
                engine.update(cx, *id, |engine, it| {
                    let follow_ups = engine.queue.note_hold(it.place(), now);
                    engine.add(follow_ups);
                });
            });
        } else if self
            .handle
            .read(|it| it.lease.is_reader() && it.hold_state(generation) == HoldState::Held)
        {
            return ExtensionOutcome::Extended;
        }
        self.wait_for(|it| it.extension_outcome(generation, extension))
            .await
    }
}
