//! The lock as its holder sees it.

use std::{
    future::{pending, poll_fn},
    sync::Arc,
    task::{Poll, Waker, ready},
    time::Duration,
};

use redlock_core::{End, LossReason, ReleaseVerdict, Status, Timestamp, Ttl};

use super::{
    Cx, Engine, Handle, RequestEnd,
    extensions::ExtensionOutcome,
    request::{HoldState, Request},
};
use crate::{Acquisition, observer::Subject};

/// Counts the holders that a lease had: each handover starts a new generation, and so does each reader that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u32);

impl Generation {
    pub(super) const FIRST: Self = Self(0);

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A lease as one of its holders sees it. A holder of an earlier generation cannot change the lease any more.
#[derive(Clone)]
pub(crate) struct HeldLease {
    pub(super) handle: Handle,
    pub(super) generation: Generation,
}

/// The task that wants a lock.
pub(crate) struct Claimant<'a> {
    /// Cloned and dropped outside of the mutex.
    pub(crate) waker: Waker,
    /// When it requested the lock.
    pub(crate) since: Timestamp,
    /// The request, as observers know it.
    pub(crate) subject: Option<&'a Arc<Subject>>,
}

impl HeldLease {
    /// Returns the lease as its first holder sees it, from the moment it is created.
    pub(super) const fn first(handle: Handle) -> Self {
        Self {
            handle,
            generation: Generation::FIRST,
        }
    }

    /// Returns how the holder has got the lock, after this time.
    pub(crate) fn acquisition(&self, waited: Duration) -> Acquisition {
        let acquisition =
            |it: &Request| it.acquisition(&self.handle.client, self.generation, waited);
        self.handle.read(acquisition)
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until the lock is held, by this request or by another one that has passed it on, or will not be held. Takes the
    /// lock, which is renewed from then on. Returns false if it is lost already, or if its client has shut down.
    pub(crate) fn poll_taken(
        &mut self,
        now: Timestamp,
        claimant: &mut Claimant<'_>,
    ) -> Poll<Result<bool, RequestEnd>> {
        let Self { handle, generation } = self;
        let (client, id) = (&handle.client, &mut handle.id);
        client.change(now, |engine, cx| {
            let Some(request) = engine.get_mut(*id) else {
                return Poll::Pending;
            };
            let passed_on = ready!(request.poll_acquired(&mut claimant.waker))?;
            if let Some(served) = passed_on {
                // Its handle was counted when it was passed on. This request waits no longer.
                engine.end_handle(*id);
                (*id, *generation) = served;
            }
            if client.is_shut_down() {
                return Poll::Ready(Ok(false));
            }
            let is_held = engine.update(cx, *id, |_, it| it.claim(cx, *generation, claimant));
            Poll::Ready(Ok(is_held == Some(true)))
        })
    }

    /// Returns the end of validity, if the holder still has the lock now, by the clock.
    pub(crate) fn valid_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.handle.read(|it| {
            let valid_until = it.lease.valid_until(now);
            valid_until.filter(|_| it.is_generation(self.generation))
        })
    }

    /// Extends the lock now, by this ttl.
    ///
    /// # Cancel safety
    ///
    /// An extension that was started goes on without its caller.
    pub(crate) async fn extend_for(&self, ttl: Ttl) -> ExtensionOutcome {
        let (now, generation) = (self.handle.now(), self.generation);
        let extension = self.update(now, |_, _, it| it.extend_for(now, generation, ttl));
        self.wait_for(|it| it.extension_outcome(generation, extension))
            .await
    }

    /// Waits until the lock is lost. Pending for ever if the holder releases it or hands it over.
    pub(crate) async fn lost(&self) -> LossReason {
        let now = self.handle.now();
        if self.valid_until(now).is_none() {
            // The clock may show the end before the timers have recorded its reason.
            self.update(now, |_, _, it| it.lease.handle_timeout(now));
        }
        let over = self.wait_for(|it| match it.hold_state(self.generation) {
            HoldState::Held => None,
            over => Some(over),
        });
        match over.await {
            HoldState::Lost(reason) => reason,
            HoldState::Held | HoldState::Released => pending().await,
        }
    }

    /// Returns since when the holder has the lock, if it has.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.handle.read(|it| it.held_since(self.generation))
    }

    /// Ends the hold, and releases the lock at this time. It is neither renewed nor handed over before. Returns a future that
    /// ends when a majority has said that it keeps the lock for no longer. Returns `None`, and changes nothing, unless the
    /// holder has it and it is valid until then.
    pub(crate) fn release_at(
        &self,
        now: Timestamp,
        until: Timestamp,
    ) -> Option<impl Future<Output = ()>> {
        let generation = self.generation;
        let check = self.update(now, |_, _, it| it.release_at(now, generation, until))?;
        Some(self.wait_for(move |it| it.is_checked(check).then_some(())))
    }

    /// Returns the lock as it is held once the holder has ended its hold by [`release_at`](Self::release_at).
    pub(crate) fn by_nobody(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            generation: self.generation.next(),
        }
    }

    /// Returns why the lock is lost, after it was found to be lost.
    pub(crate) fn loss(&self) -> LossReason {
        match self.handle.read(|it| it.hold_state(self.generation)) {
            HoldState::Lost(reason) => reason,
            _ => LossReason::Expired,
        }
    }

    /// Releases the lock, or gives up acquiring it. Changes nothing for a later generation.
    pub(crate) fn release(&self, now: Timestamp) {
        let generation = self.generation;
        self.update(now, |engine, cx, it| engine.release(cx, it, generation));
    }

    /// Waits until the release has ended. Returns `None` if the lock was lost before.
    pub(crate) async fn released(&self) -> Option<ReleaseVerdict> {
        let end = self.wait_for(|it| match it.lease.status() {
            Status::Ended(end) => Some(end),
            _ => None,
        });
        match end.await {
            End::Released(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Changes the request, which is there for as long as the handle is.
    pub(super) fn update<T: Default>(
        &self,
        now: Timestamp,
        change: impl FnOnce(&mut Engine, Cx<'_>, &mut Request) -> T,
    ) -> T {
        let Handle { client, id, .. } = &self.handle;
        let changed = client.change(now, |engine, cx| {
            engine.update(cx, *id, |engine, request| change(engine, cx, request))
        });
        changed.unwrap_or_default()
    }

    /// Waits until the request is as wanted.
    pub(super) async fn wait_for<T>(&self, mut ready: impl FnMut(&Request) -> Option<T>) -> T {
        let Handle { client, id, .. } = &self.handle;
        poll_fn(|cx| {
            // Cloned and dropped outside of the mutex.
            let mut waker = cx.waker().clone();
            let mut engine = client.engine.lock();
            let Some(request) = engine.get_mut(*id) else {
                return Poll::Pending;
            };
            let value = ready(request);
            if value.is_none() {
                request.watch(&mut waker);
            }
            value.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Engine {
    /// Releases a lock, or gives up acquiring it. A lock that was passed on to the request is released, too.
    pub(super) fn release(&mut self, cx: Cx<'_>, request: &mut Request, generation: Generation) {
        if let Some((id, generation)) = request.release(cx.now, generation) {
            self.update(cx, id, |_, request| {
                request.handles -= 1;
                // It holds its lock, so nothing was passed on to it.
                let _ = request.release(cx.now, generation);
            });
        }
    }
}
