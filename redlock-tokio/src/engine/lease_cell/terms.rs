use std::sync::Arc;

use redlock_core::LeaseConfig;

use crate::{key::KeySet, options::QueuePolicy};

/// The options of a lock, resolved. Shared by all requests with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) config: Arc<LeaseConfig>,
    pub(crate) policy: QueuePolicy,
    pub(crate) fenced: bool,
}

/// A lock that is asked for.
#[derive(Clone)]
pub(crate) struct LeaseRequest {
    pub(crate) keys: KeySet,
    pub(crate) terms: Arc<Terms>,
    pub(crate) label: Option<&'static str>,
}

impl LeaseRequest {
    /// Returns whether the lock of one request would do for the other.
    pub(super) fn could_share(&self, other: &Self) -> bool {
        let is_shareable =
            |request: &Self| request.terms.hands_over() && !request.keys.has_several();
        is_shareable(self)
            && is_shareable(other)
            && (Arc::ptr_eq(&self.terms, &other.terms)
                || (self.terms.config.validity == other.terms.config.validity
                    && self.terms.config.keep_alive == other.terms.config.keep_alive))
    }
}

impl Terms {
    /// Returns whether the lock goes to the next waiter without a release. The next holder of a fenced lock needs a token of
    /// its own.
    pub(super) const fn hands_over(&self) -> bool {
        self.policy.hands_over && !self.fenced
    }
}
