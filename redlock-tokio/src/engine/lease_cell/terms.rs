use std::sync::Arc;

use redlock_core::LeaseConfig;

use crate::{engine::turns::TurnLength, key::KeySet, options::QueuePolicy};

/// The options of a lock, resolved. Shared by all requests with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) config: Arc<LeaseConfig>,
    pub(crate) policy: QueuePolicy,
    pub(crate) fenced: bool,
    /// Whether a request fails at once in an outage.
    pub(crate) fails_fast: bool,
    /// How long the turns of this process are.
    pub(super) turn_length: TurnLength,
}

/// A lock that is asked for.
#[derive(Clone)]
pub(crate) struct LeaseRequest {
    /// Of a permit, the key of the semaphore.
    pub(crate) keys: KeySet,
    pub(crate) terms: Arc<Terms>,
    pub(crate) label: Option<&'static str>,
}

impl Terms {
    /// Returns whether the lock goes to the next waiter without a release. The next holder of a fenced lock needs a token of
    /// its own.
    pub(super) const fn hands_over(&self) -> bool {
        self.policy.hands_over && !self.fenced
    }
}
