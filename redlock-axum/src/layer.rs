use std::{fmt, sync::Arc, time::Duration};

use axum::{
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use redlock_tokio::{LockOptions, OptionsError, Redlock};
use redlock_tower::{OnCancel, OnLost, TaskTracker};
use tower_layer::Layer;

use crate::{
    LockService, Problem,
    key::{LayerKey, Methods, RequestKey},
    locked::InsertLocked,
    rejection::RejectionPolicy,
    response_service::Responding,
    service::Locking,
};

/// Serialises the handlers of a route by resource, in every process that locks over the same nodes.
///
/// Works on a [`Router`](axum::Router), on a [`MethodRouter`](axum::routing::MethodRouter) and,
/// best, with [`route_layer`](axum::Router::route_layer), which leaves requests that match no route
/// alone. It never fails: what goes wrong is a response. See the [crate's page](crate).
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`methods`](Self::methods) | all but GET, HEAD, OPTIONS, TRACE | which requests need a lock |
/// | [`wait`](Self::wait) | 5 s | how long a request waits |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 64 | how many wait for a key |
/// | [`max_waiters_total`](Self::max_waiters_total) | 1024 | how many wait for all keys of the layer |
/// | [`refuse_long_waits`](LockOptions::refuse_long_waits) | no | whether to refuse at once if the expected wait exceeds the limit |
/// | [`cancel_on_disconnect`](Self::cancel_on_disconnect) | no | whether a handler is dropped with its client |
/// | [`on_cancel`](Self::on_cancel) | it is released | what becomes of the lock of a handler that is dropped, or panics |
/// | [`hold_until_body_end`](Self::hold_until_body_end) | no | whether the lock is held while the body is sent |
/// | [`on_lost`](Self::on_lost) | the response is left alone | what becomes of it if the lock is lost |
/// | [`fenced`](Self::fenced) | no | whether the lock has a fencing token |
/// | [`fail_open`](Self::fail_open) | no | whether handlers run without a lock when there is no quorum |
#[must_use = "a layer does nothing until it is added to a router"]
pub struct LockLayer<K> {
    key: LayerKey<K>,
    tasks: Option<TaskTracker>,
    cancels: bool,
    body_end: Option<Duration>,
    pub(crate) policy: Arc<RejectionPolicy>,
    /// The options that do not concern HTTP.
    inner: redlock_tower::LockLayer<()>,
}

impl<K: RequestKey> LockLayer<K> {
    /// Creates a layer that takes each request's key from `key`: from [parts of the request](crate::key()), such
    /// as `key("order", path("id"))`, from a closure `|request: &Request| ..`, or from any
    /// [`ExtractKey`](crate::ExtractKey). A tuple of keys locks all of them.
    pub fn new(redlock: Redlock, key: K) -> Self {
        let options = LockOptions::new().max_waiters_per_key(64);
        Self {
            inner: redlock_tower::LockLayer::new(redlock.clone(), ())
                .options(options)
                .max_waiters_total(1024),
            key: LayerKey::new(key, redlock),
            tasks: None,
            cancels: false,
            body_end: None,
            policy: Arc::default(),
        }
    }

    /// Checks the options, so that a service says what is wrong with them when it starts. Otherwise each
    /// request that needs a lock is answered with a 500.
    ///
    /// # Errors
    ///
    /// Says which option makes no lock, and why. A tuple of keys cannot be [fenced](Self::fenced); that a closure
    /// makes several keys is only seen when a request comes.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.inner.clone().with_key(self.key.clone()).check()
    }
}

impl<K> LockLayer<K> {
    /// Sets options for the layer's locks. What they leave open falls back to what was set
    /// before, and then to the defaults of the [`Redlock`].
    pub fn options(mut self, options: LockOptions) -> Self {
        self.inner = self.inner.options(options);
        self
    }

    /// Sets how long a request [waits](LockOptions::wait) for its lock. A body that the key is in is read before,
    /// and has a [limit of its own](crate::BodyLimit).
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks; at most
    /// [`RedlockBuilder::max_ttl`](redlock_tokio::RedlockBuilder::max_ttl), 10 s unless it is set.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets for how long a handler may [hold](LockOptions::max_hold) its lock.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Acquires the locks with a [fencing token](LockOptions::fenced), which a handler finds in its
    /// [`Locked`](crate::Locked) by [`fencing_token`](redlock_tokio::Hold::fencing_token). A request that wants several
    /// keys is answered with a 500 then.
    pub fn fenced(self) -> Self {
        self.options(LockOptions::new().fenced())
    }

    /// Sets what goes in front of all keys of this layer.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.key.rules_mut().prefix = prefix.as_ref().into();
        self
    }

    /// Sets how many requests may wait for one key before others get a 429; 64 by default. Those whose lock is
    /// on its way are among them.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets how many requests may wait for all keys of this layer before others get a 429; 1024 by default.
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.inner = self.inner.max_waiters_total(waiters);
        self
    }

    /// Locks for requests of every method, the safe ones too.
    pub fn all_methods(mut self) -> Self {
        self.key.rules_mut().methods = Methods::All;
        self
    }

    /// Locks for requests with these methods, and lets all others pass.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.key.rules_mut().methods = Methods::These(methods.into_iter().collect());
        self
    }

    /// Drops the handler where it stands when its client goes away, and releases the lock at once, or lets
    /// it expire, as [`on_cancel`](Self::on_cancel) says. By default it runs to its end under the lock, in a
    /// task of its own: a statement that a database is carrying out would otherwise go on without the lock.
    pub fn cancel_on_disconnect(mut self) -> Self {
        self.cancels = true;
        self
    }

    /// Sets what becomes of the lock of a request that does not come to its end: its handler panics, or is
    /// dropped with its client, or the body that [holds the lock](Self::hold_until_body_end) is.
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.inner = self.inner.on_cancel(on_cancel);
        self
    }

    /// Holds the lock until the response's body has been sent or is dropped, but no longer than `max`
    /// after its head: a client that reads slowly must not keep the others out.
    pub fn hold_until_body_end(mut self, max: Duration) -> Self {
        self.body_end = Some(max);
        self
    }

    /// Sets what becomes of the response if the lock is lost while its handler works.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.inner = self.inner.on_lost(on_lost);
        self
    }

    /// Lets handlers run *without a lock* when no quorum of nodes is available: for routes where that is
    /// better than a 503. [`Locked`](crate::Locked) is not there then; take an `Option` of it.
    pub fn fail_open(mut self) -> Self {
        self.inner = self.inner.fail_open();
        self
    }

    /// Sets the name under which this layer shows in logs and metrics.
    pub fn label(mut self, label: &str) -> Self {
        self.inner = self.inner.label(label);
        self.policy_mut().label = label.into();
        self
    }

    /// Runs handlers in tasks that are tracked by this tracker. At shutdown, close it and
    /// [wait](TaskTracker::wait) for it after the server has stopped, and before
    /// [`Redlock::shutdown`].
    pub fn tasks(mut self, tasks: TaskTracker) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Sets the shortest `Retry-After` of responses to requests that got no lock; a second by default. If
    /// the expected wait, by the recent holds of the lock, is longer, that counts instead. A random part of up
    /// to one `delay` is added, so that clients do not all come at once.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.policy_mut().retry_after = delay;
        self
    }

    /// Sets the status of the response to requests whose wait ended without a lock, instead of 423: 409, or 429, or a
    /// 2xx for webhooks that must not come again, which then has no `Retry-After`. One without content,
    /// such as 204, has no body.
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.policy_mut().contended = status;
        self
    }

    /// Makes responses of what went wrong, instead of problem JSON.
    pub fn rejection<R: IntoResponse>(
        mut self,
        respond: impl Fn(Problem) -> R + Send + Sync + 'static,
    ) -> Self {
        let respond = move |problem| -> Response { respond(problem).into_response() };
        self.policy_mut().respond = Some(Arc::new(respond));
        self
    }

    fn policy_mut(&mut self) -> &mut RejectionPolicy {
        Arc::make_mut(&mut self.policy)
    }
}

impl<K> Clone for LockLayer<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            tasks: self.tasks.clone(),
            cancels: self.cancels,
            body_end: self.body_end,
            policy: Arc::clone(&self.policy),
            inner: self.inner.clone(),
        }
    }
}

impl<K> fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("methods", &self.key.rules().methods)
            .field("body_end", &self.body_end)
            .finish_non_exhaustive()
    }
}

impl<S, K> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let inner = Responding::new(inner);
        let inline = self
            .inner
            .clone()
            .with_key(self.key.clone())
            .share_hold(InsertLocked(self.key.rules().redlock.clone()));
        let locking = match (self.cancels, self.body_end) {
            (true, None) => Locking::Inline(inline.layer(inner)),
            (true, Some(max)) => {
                Locking::InlineToBodyEnd(inline.hold_until_body_end(max).layer(inner))
            }
            (false, body_end) => {
                let mut detached = inline.detached();
                if let Some(tasks) = &self.tasks {
                    detached = detached.tasks(tasks.clone());
                }
                match body_end {
                    None => Locking::Detached(detached.layer(inner)),
                    Some(max) => {
                        Locking::DetachedToBodyEnd(detached.hold_until_body_end(max).layer(inner))
                    }
                }
            }
        };
        LockService::new(locking, Arc::clone(&self.policy))
    }
}
