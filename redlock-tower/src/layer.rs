use std::time::Duration;

use redlock_tokio::{LockOptions, Redlock};
use tower_layer::Layer;

use crate::LockService;

/// Serialises calls with the same key, in every process that locks over the same nodes.
///
/// See the [crate's page](crate) for an example, and [`LockService`] for what happens when.
#[derive(Clone, Debug)]
pub struct LockLayer<K, H = ()> {
    redlock: Redlock,
    key: K,
    share: H,
    options: LockOptions,
}

impl<K> LockLayer<K> {
    /// Creates a layer that takes each request's key from `key`, an
    /// [`ExtractKey`](crate::ExtractKey).
    pub fn new(redlock: Redlock, key: K) -> Self {
        Self {
            redlock,
            key,
            share: (),
            options: LockOptions::new(),
        }
    }
}

impl<K, H> LockLayer<K, H> {
    /// Sets options for the layer's locks. What they leave open falls back to what was set
    /// before, and then to the defaults of the [`Redlock`].
    #[must_use]
    pub fn options(self, options: LockOptions) -> Self {
        Self {
            options: options.or(self.options),
            ..self
        }
    }

    /// Sets how long a call [waits](LockOptions::wait) for its lock.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets for how long a call may [hold](LockOptions::max_hold) its lock.
    #[must_use]
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Hands a view of the lock to the inner service, by way of a
    /// [`ShareHold`](crate::ShareHold).
    #[must_use]
    pub fn share_hold<H2>(self, share: H2) -> LockLayer<K, H2> {
        LockLayer {
            redlock: self.redlock,
            key: self.key,
            share,
            options: self.options,
        }
    }
}

impl<S, K: Clone, H: Clone> Layer<S> for LockLayer<K, H> {
    type Service = LockService<S, K, H>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(
            inner,
            self.redlock.clone(),
            self.key.clone(),
            self.share.clone(),
            self.options,
        )
    }
}
