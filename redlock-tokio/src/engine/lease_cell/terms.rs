use std::sync::Arc;

use redlock_core::{LeaseConfig, Share};

use crate::{
    key::{KeySet, SlotKeys},
    node::Holder,
    observer::Subject,
    options::QueuePolicy,
};

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
#[derive(Clone)]
pub(crate) struct LeaseRequest {
    /// Of a permit, the key of the semaphore.
    pub(crate) keys: KeySet,
    pub(crate) terms: Arc<Terms>,
    pub(crate) label: Option<&'static str>,
    /// The request as observers know it. `None` if there are none.
    pub(crate) subject: Option<Arc<Subject>>,
}

impl LeaseRequest {
    /// Returns whether a lock of these keys with these terms, which is handed over, would do for this request. It has one key, or
    /// one slot of as many permits as this request counts with.
    pub(super) fn could_take_over(&self, keys: &KeySet, terms: &Arc<Terms>) -> bool {
        let permits = |keys: &KeySet| keys.slots().map(SlotKeys::permits);
        self.terms.hands_over()
            && !self.keys.has_several()
            && permits(&self.keys) == permits(keys)
            && self.fits(terms)
    }

    /// Returns whether a reader could share a lock with these terms, which other readers of this process hold.
    pub(super) fn could_join(&self, terms: &Arc<Terms>) -> bool {
        self.keys.share() == Share::Reader
            && self.terms.policy.hands_over
            && terms.policy.hands_over
            && self.fits(terms)
    }

    fn fits(&self, terms: &Arc<Terms>) -> bool {
        Arc::ptr_eq(&self.terms, terms)
            || (self.terms.config.validity == terms.config.validity
                && self.terms.config.keep_alive == terms.config.keep_alive)
    }
}

impl Terms {
    /// Returns whether the lock goes to the next waiter without a release. The next holder of a fenced lock needs a token of
    /// its own.
    pub(super) const fn hands_over(&self) -> bool {
        self.policy.hands_over && !self.fenced
    }
}
