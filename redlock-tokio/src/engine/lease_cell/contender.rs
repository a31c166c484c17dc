use std::{fmt, sync::Arc};

use redlock_core::Timestamp;

use super::{LeaseCell, waiter::Waiter};
use crate::engine::timers::Timed;

/// A lease or a waiter, which has a place in the queues of its keys.
#[derive(Clone)]
pub(crate) enum Contender {
    /// It waits for its turn.
    Waiter(Arc<Waiter>),
    /// It has the turn.
    Lease(Arc<LeaseCell>),
}

impl Contender {
    /// Returns the lease, if it has one.
    pub(crate) fn lease(&self) -> Option<&Arc<LeaseCell>> {
        match self {
            Self::Waiter(_) => None,
            Self::Lease(lease) => Some(lease),
        }
    }

    pub(crate) fn into_lease(self) -> Option<Arc<LeaseCell>> {
        match self {
            Self::Waiter(_) => None,
            Self::Lease(lease) => Some(lease),
        }
    }

    pub(super) fn waiter(&self) -> Option<&Arc<Waiter>> {
        match self {
            Self::Waiter(waiter) => Some(waiter),
            Self::Lease(_) => None,
        }
    }

    /// Wakes the task of a request that fails fast and waits, to look whether a majority can still vote.
    pub(super) fn wake_to_look(&self) {
        match self {
            Self::Waiter(waiter) => waiter.wake_to_look(),
            Self::Lease(lease) => lease.wake_to_look(),
        }
    }

    /// Ends it, unless it holds its lock.
    pub(crate) fn stop_acquiring(&self) {
        match self {
            Self::Waiter(waiter) => waiter.abandon(),
            Self::Lease(lease) => lease.stop_acquiring(),
        }
    }
}

impl Timed for Contender {
    type Lease = Arc<LeaseCell>;
    type Waiter = Waiter;

    fn of_lease(lease: Arc<LeaseCell>) -> Self {
        Self::Lease(lease)
    }

    fn of_waiter(waiter: Arc<Waiter>) -> Self {
        Self::Waiter(waiter)
    }

    fn id(&self) -> u64 {
        match self {
            Self::Waiter(waiter) => waiter.ticket().number(),
            Self::Lease(lease) => lease.id(),
        }
    }

    fn handle_timeout(&self, now: Timestamp) {
        match self {
            Self::Waiter(waiter) => waiter.handle_timeout(now),
            Self::Lease(lease) => lease.handle_timeout(now),
        }
    }

    fn abandon(&self) {
        match self {
            Self::Waiter(waiter) => waiter.abandon(),
            Self::Lease(lease) => lease.abandon(),
        }
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.id()).finish()
    }
}
