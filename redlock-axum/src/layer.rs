use std::{sync::Arc, time::Duration};

use redlock_tokio::{LockOptions, Redlock};
use tower_layer::Layer;

use crate::{LockService, key::MethodKey, locked::InsertHold, rejection::RejectionPolicy};

/// Serialises the handlers of a route by resource, in every process that locks over the same nodes.
///
/// Works on a [`Router`](axum::Router), on a [`MethodRouter`](axum::routing::MethodRouter) and,
/// best, with [`route_layer`](axum::Router::route_layer), which leaves requests that match no route
/// alone. It never fails: what goes wrong is a response. See the [crate's page](crate).
///
/// Requests with the safe methods GET, HEAD, OPTIONS and TRACE (RFC 9110, section 9.2.1) pass
/// without a lock, unless [`all_methods`](Self::all_methods) is called.
#[derive(Debug)]
#[must_use = "a layer does nothing until it is added to a router"]
pub struct LockLayer<K> {
    redlock: Redlock,
    key: Arc<K>,
    all_methods: bool,
    options: LockOptions,
    policy: RejectionPolicy,
}

impl<K> LockLayer<K> {
    /// Creates a layer that takes each request's key from `key`: from a [path
    /// parameter](crate::path), from a closure `|request: &Request| ..`, or from any
    /// [`ExtractKey`](crate::ExtractKey).
    pub fn new(redlock: Redlock, key: K) -> Self {
        Self {
            redlock,
            key: Arc::new(key),
            all_methods: false,
            options: LockOptions::new(),
            policy: RejectionPolicy::default(),
        }
    }

    /// Sets options for the layer's locks. What they leave open falls back to what was set
    /// before, and then to the defaults of the [`Redlock`].
    pub fn options(self, options: LockOptions) -> Self {
        Self {
            options: options.or(self.options),
            ..self
        }
    }

    /// Sets how long a request [waits](LockOptions::wait) for its lock.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets for how long a handler may [hold](LockOptions::max_hold) its lock.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Locks for requests of every method, the safe ones too.
    pub fn all_methods(self) -> Self {
        Self {
            all_methods: true,
            ..self
        }
    }

    /// Sets after how long clients that got no lock are told to come back; a second by default.
    /// Up to as much again is added at random, so that they do not all come at once.
    pub fn retry_after(self, delay: Duration) -> Self {
        Self {
            policy: RejectionPolicy::new(delay),
            ..self
        }
    }
}

impl<K> Clone for LockLayer<K> {
    fn clone(&self) -> Self {
        Self {
            redlock: self.redlock.clone(),
            key: Arc::clone(&self.key),
            all_methods: self.all_methods,
            options: self.options,
            policy: self.policy,
        }
    }
}

impl<S, K> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let key = MethodKey::new(Arc::clone(&self.key), self.all_methods);
        let layer = redlock_tower::LockLayer::new(self.redlock.clone(), key)
            .share_hold(InsertHold)
            .options(self.options);
        LockService::new(layer.layer(inner), self.policy)
    }
}
