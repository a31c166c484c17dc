//! The lease as its holder sees it.

use std::{future::pending, sync::Arc};

use redlock_core::{End, LossReason, ReleaseVerdict, Status, Timestamp, Ttl};

use super::{
    LeaseCell,
    extensions::ExtensionOutcome,
    observed::Claim,
    state::{CellState, HoldState},
};

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
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub(super) lease: Arc<LeaseCell>,
    pub(super) generation: Generation,
}

impl HeldLease {
    /// Returns the lease as its first holder sees it, from the moment it is created.
    pub(crate) const fn first(lease: Arc<LeaseCell>) -> Self {
        Self {
            lease,
            generation: Generation::FIRST,
        }
    }

    /// Returns whether the lock was handed over to this holder, and not granted by nodes.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.generation != Generation::FIRST
    }

    /// Returns whether another reader of this process had the lock, and shares it with this holder.
    pub(crate) fn has_joined(&self) -> bool {
        self.lease.state().has_joined(self.generation)
    }

    pub(crate) const fn lease(&self) -> &Arc<LeaseCell> {
        &self.lease
    }

    /// Notes that the holder has taken the lock, which is renewed from now on. Returns whether the lock is still held.
    pub(crate) fn claim(&self, now: Timestamp, claim: Option<Box<Claim>>) -> bool {
        let generation = self.generation;
        self.lease
            .update(now, |state| state.claim(now, generation, claim))
    }

    /// Returns the end of validity, if the holder still has the lock now, by the clock.
    pub(crate) fn valid_until(&self, now: Timestamp) -> Option<Timestamp> {
        let state = self.lease.state();
        let valid_until = state.lease.valid_until(now);
        valid_until.filter(|_| state.is_generation(self.generation))
    }

    /// Extends the lock now, by this ttl.
    ///
    /// # Cancel safety
    ///
    /// An extension that was started goes on without its caller.
    pub(crate) async fn extend_for(&self, ttl: Ttl) -> ExtensionOutcome {
        let now = self.lease.now();
        let generation = self.generation;
        let extension = self
            .lease
            .update(now, |state| state.extend_for(now, generation, ttl));
        self.lease
            .wait_for(|state| state.extension_outcome(generation, extension))
            .await
    }

    /// Waits until the lock is lost. Pending for ever if the holder releases it or hands it over.
    pub(crate) async fn lost(&self) -> LossReason {
        let now = self.lease.now();
        if self.valid_until(now).is_none() {
            // The clock may show the end before the timers have recorded its reason.
            self.lease
                .update(now, |state| state.lease.handle_timeout(now));
        }
        let over = self
            .lease
            .wait_for(|state| match state.hold_state(self.generation) {
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
        self.lease.state().held_since(self.generation)
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
        let check = self
            .lease
            .update(now, |state| state.release_at(now, generation, until))?;
        let is_checked = move |state: &CellState| state.is_checked(check).then_some(());
        Some(self.lease.wait_for(is_checked))
    }

    /// Returns the lock as it is held once the holder has ended its hold by [`release_at`](Self::release_at).
    pub(crate) fn by_nobody(&self) -> Self {
        Self {
            lease: Arc::clone(&self.lease),
            generation: self.generation.next(),
        }
    }

    /// Returns why the lock is lost, after it was found to be lost.
    pub(crate) fn loss(&self) -> LossReason {
        match self.lease.state().hold_state(self.generation) {
            HoldState::Lost(reason) => reason,
            HoldState::Held | HoldState::Released => LossReason::Expired,
        }
    }

    /// Releases the lock, or gives up acquiring it. Changes nothing for a later generation.
    pub(crate) fn release(&self, now: Timestamp) {
        let generation = self.generation;
        let served = self
            .lease
            .update(now, |state| state.release(now, generation));
        if let Some(served) = served {
            served.release(now);
        }
    }

    /// Waits until the release has ended. Returns `None` if the lock was lost before.
    pub(crate) async fn released(&self) -> Option<ReleaseVerdict> {
        let end = self.lease.wait_for(|state| match state.lease.status() {
            Status::Ended(end) => Some(end),
            _ => None,
        });
        match end.await {
            End::Released(verdict) => Some(verdict),
            _ => None,
        }
    }
}
