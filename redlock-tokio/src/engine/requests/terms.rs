use std::sync::Arc;

use redlock_core::LeaseConfig;

use crate::{key::KeySet, node::Holder, observer::Subject, options::QueuePolicy};

/// The options of a lock, resolved. Shared by all requests with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) config: Arc<LeaseConfig>,
    pub(crate) policy: QueuePolicy,
    pub(crate) fenced: bool,
    /// Whether a request fails at once in an outage.
    pub(crate) fails_fast: bool,
    /// The client that has given the lock away, if the request adopts one.
    pub(crate) adopts_from: Option<Holder>,
}

/// A lock that is asked for.
pub(crate) struct LeaseRequest {
    /// Of a permit, the key of the semaphore.
    pub(crate) keys: KeySet,
    pub(crate) terms: Arc<Terms>,
    pub(crate) label: Option<&'static str>,
    /// The request as observers know it. `None` if there are none.
    pub(crate) subject: Option<Arc<Subject>>,
}

impl Terms {
    /// Returns whether the lock goes to the next waiter without a release. The next holder of a fenced lock needs a token of
    /// its own.
    pub(super) const fn hands_over(&self) -> bool {
        self.policy.hands_over && !self.policy.streak.is_zero() && !self.fenced
    }

    /// Returns whether a lock with these terms would do for a request with the others.
    pub(super) fn fits(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other)
            || (self.config.validity == other.config.validity
                && self.config.keep_alive == other.config.keep_alive)
    }
}
