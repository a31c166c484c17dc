use std::{fmt, sync::Arc, time::Duration};

use axum::{
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use redlock_tokio::{LockOptions, Redlock, errors::OptionsError};
use redlock_tower::{OnCancel, OnLost, TaskTracker};
use tower_layer::Layer;

use crate::{
    BodyLimit, LockService, Problem,
    key::{LayerKey, Methods, RequestKey},
    rejection::RejectionPolicy,
};

/// A layer that serialises the handlers of a route by resource, in every process that locks over the same nodes.
///
/// Works on a [`Router`](axum::Router), on a [`MethodRouter`](axum::routing::MethodRouter) and, preferably, with
/// [`route_layer`](axum::Router::route_layer), which does not affect requests that match no route. The layer never
/// fails: it answers each error with a response. See the [guide](crate::guide) for the responses.
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Router, http::StatusCode, routing::post};
/// use redlock_axum::{LockLayer, key, path};
/// use redlock_tokio::{LockOptions, Redlock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::embedded().await?;
/// let layer = LockLayer::new(redlock, key("order", path("order").parse::<u64>()))
///     .wait(Duration::from_secs(2))
///     .max_hold(Duration::from_secs(30))
///     .max_waiters_per_key(10)
///     .contended_status(StatusCode::CONFLICT)
///     .options(LockOptions::new().handover(false))
///     .label("orders");
/// layer.check()?; // fails now if an option is invalid
///
/// let app: Router = Router::new()
///     .route("/orders/{order}/pay", post(async || "paid"))
///     .route_layer(layer);
/// # use tower::ServiceExt;
/// # let request = axum::http::Request::post("/orders/7/pay").body(axum::body::Body::empty())?;
/// # assert_eq!(app.oneshot(request).await?.status(), 200);
/// # Ok(())
/// # }
/// ```
///
/// The layer has shortcuts for the options `ttl`, `wait`, `max_hold`, `fenced`, `max_waiters_per_key` and `label`.
/// [`options`](Self::options) sets all others.
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`methods`](Self::methods) | all but GET, HEAD, OPTIONS, TRACE; all with `read_write` | what needs a lock |
/// | [`body_limit`](Self::body_limit) | 2 MiB and 30 s | how much of a body is read before the wait, and for how long |
/// | [`ttl`](Self::ttl) | 10 s | how long a crashed process blocks other requests |
/// | [`wait`](Self::wait) | 5 s | how long a request waits |
/// | [`max_hold`](Self::max_hold) | 60 s | for how long the lock of a handler is renewed |
/// | [`fenced`](Self::fenced) | no | whether the lock has a fencing token |
/// | [`permits`](Self::permits) | none: one at a time | how many requests with one key run at once |
/// | [`read_write`](Self::read_write) | no | whether requests with safe methods share the lock, as readers |
/// | [`max_waiters_per_key`](Self::max_waiters_per_key) | 64 | how many requests wait for a key |
/// | [`max_waiters_total`](Self::max_waiters_total) | 1024 | how many requests wait for any key of the layer |
/// | [`max_keys`](Self::max_keys) | 16 | how many different keys a request may want |
/// | [`fail_fast`](LockOptions::fail_fast) | yes, but not with `fail_open` | whether an outage is a 503 at once |
/// | [`cancel_on_disconnect`](Self::cancel_on_disconnect) | no | whether a handler ends when its client leaves |
/// | [`on_cancel`](Self::on_cancel) | release | what happens to the lock of a handler that is dropped or panics |
/// | [`hold_until_body_end`](Self::hold_until_body_end) | no | whether the lock is held while the body is sent |
/// | [`on_lost`](Self::on_lost) | keep the response | what happens to the response if the lock is lost |
/// | [`fail_open`](Self::fail_open) | no | whether handlers run without a lock when there is no quorum |
#[derive(Clone)]
#[must_use = "a layer does nothing until it is added to a router"]
pub struct LockLayer<K> {
    pub(crate) key: LayerKey<K>,
    /// Whether a handler is dropped when its client goes away.
    pub(crate) cancels: bool,
    /// How long a body keeps the lock, if bodies do.
    pub(crate) body_end: Option<Duration>,
    pub(crate) policy: Arc<RejectionPolicy>,
    /// The options that do not concern HTTP.
    pub(crate) lock: redlock_tower::LockLayer<()>,
}

impl<K: RequestKey> LockLayer<K> {
    /// Creates a layer that takes the key of each request from a [`RequestKey`].
    ///
    /// That is a [key of parts of the request](crate::key()), such as `key("order", path("id").parse::<u64>())`, a
    /// closure `|request: &Request| ..`, or any other [`ExtractKey`](crate::ExtractKey). A tuple of them locks several
    /// keys.
    pub fn new(redlock: Redlock, key: K) -> Self {
        let options = LockOptions::new().max_waiters_per_key(64).fail_fast(true);
        Self {
            lock: redlock_tower::LockLayer::new(redlock.clone(), ())
                .options(options)
                .max_waiters_total(1024),
            key: LayerKey::new(key, redlock),
            cancels: false,
            body_end: None,
            policy: Arc::default(),
        }
    }

    /// Checks the options, so that a service can report invalid ones when it starts. Otherwise each request that
    /// needs a lock gets a 500.
    ///
    /// # Errors
    ///
    /// Returns the option that is invalid, and why.
    pub fn check(&self) -> Result<(), OptionsError> {
        let rules = self.key.rules();
        if rules.reads_and_writes && rules.permits.is_some() {
            return Err(OptionsError::PermitsAndReaders);
        }
        self.lock.check()
    }
}

impl<K> LockLayer<K> {
    /// Sets options for the layer's locks. Options that are not set here keep their earlier value, and then fall
    /// back to the defaults of the [`Redlock`].
    pub fn options(mut self, options: LockOptions) -> Self {
        self.lock = self.lock.options(options);
        self
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks. By default the value of the [`Redlock`], which is 10 s
    /// unless its builder sets another.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets how long a request [waits](LockOptions::wait) for its lock. By default the value of the [`Redlock`], which
    /// is 5 s unless its builder sets another.
    ///
    /// The layer reads the body before. That time has a [limit](Self::body_limit) of its own.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets for how long a handler may [hold](LockOptions::max_hold) its lock. By default the value of the
    /// [`Redlock`], which is 60 s unless its builder sets another.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Sets whether the locks have a [fencing token](LockOptions::fenced), which a handler gets from its
    /// [`Locked`](crate::Locked), by [`fencing_token`](redlock_tokio::Hold::fencing_token). A request that wants
    /// several keys has one token for all of them. A request that [reads](Self::read_write) has none.
    pub fn fenced(self, fenced: bool) -> Self {
        self.options(LockOptions::new().fenced(fenced))
    }

    /// Lets up to `permits` requests with one key run at once, in the whole fleet, instead of one. A request takes a
    /// permit of the [semaphore](Redlock::semaphore) with its key, and gets a 429 if none becomes free in time. There
    /// can be 1 to 128 permits.
    ///
    /// ```
    /// # use redlock_axum::{LockLayer, key, path};
    /// # fn exports(redlock: redlock_tokio::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// // At most two exports of a tenant at once.
    /// let exports = LockLayer::new(redlock, key("export", path("tenant"))).permits(2);
    /// exports.check()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(mut self, permits: usize) -> Self {
        self.lock = self.lock.permits(permits);
        self.key.rules_mut().permits = Some(permits);
        self
    }

    /// Lets requests that read run at once, and requests that write alone, in the whole fleet: those with the safe
    /// methods GET, HEAD, OPTIONS and TRACE (RFC 9110, section 9.2.1) take the lock of a
    /// [reader](redlock_tokio::RedlockRwLock::read), and all others that of a
    /// [writer](redlock_tokio::RedlockRwLock::write). So no reader sees what a writer has half done.
    ///
    /// A request that reads costs one round trip to the majority, by a script, or none if another reader of this
    /// process has acquired the lock a short time ago. A writer that waits keeps new readers out, so a slow reader can
    /// make others wait: a request that gets no lock in time gets a 423, whatever its method.
    ///
    /// - **Methods:** the handshake of a WebSocket counts as a GET, and reads. [`methods`](Self::methods) still says
    ///   which requests need a lock. A key closure can decide for one request, such as a POST that only searches: its
    ///   [`LockRequest::read`](crate::LockRequest::read) or [`LockRequest::write`](crate::LockRequest::write) counts.
    /// - **Fencing:** [`fenced`](Self::fenced) fences the writers. Readers have no token.
    /// - **Several keys:** a request that reads must have one key, and gets a 500 otherwise. One that writes may have
    ///   several, which it locks as plain locks: they wait for readers, but do not keep new ones out.
    /// - **Permits:** not together with [`permits`](Self::permits). [`check`](Self::check) refuses that, and each
    ///   request gets a 500.
    pub fn read_write(mut self) -> Self {
        self.key.rules_mut().reads_and_writes = true;
        self
    }

    /// Sets how many requests may [wait](LockOptions::max_waiters_per_key) for one key in this process; 64 by
    /// default. Further requests get a 429.
    ///
    /// The request that has the lock, or asks the nodes for it, does not count.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets how many requests of this layer may wait behind other requests, for any key; 1024 by default. Further
    /// requests that would have to wait get a 429.
    ///
    /// A request waits behind another one if that one has or wants the same key, in this process. So the only request
    /// for a key is never refused, even if another process holds the key.
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.lock = self.lock.max_waiters_total(waiters);
        self
    }

    /// Sets how much of a request's body the layer reads before it waits for the lock, and how long it waits for the
    /// body; 2 MiB and 30 s by default. A larger body gets a 413, and a body that does not arrive in time a 408.
    ///
    /// A handler that reads its body under the lock waits for the client under the lock, and a client can send a byte
    /// and then nothing. So the layer waits for the body first, while nobody waits for the lock. The handler gets the
    /// same body, with its trailers. The time for the body is not part of [`wait`](Self::wait).
    ///
    /// Bodies up to the default limit are those that axum's extractors accept by default. If the route has a different
    /// [`DefaultBodyLimit`](axum::extract::DefaultBodyLimit), set the same number here. Each request that waits keeps
    /// its body in memory. If the body is part of the key, the limits of the [`json_field`](crate::json_field) count.
    pub fn body_limit(mut self, limit: impl Into<BodyLimit>) -> Self {
        self.key.rules_mut().body_limit = Some(limit.into());
        self
    }

    /// Leaves the body to the handler, which reads it under the lock: for large uploads, and for streams in both
    /// directions, whose bodies end after the response has begun.
    ///
    /// A client that asks first (`Expect: 100-continue`) then sends its body only once the request has its lock. But a
    /// client that stops sending keeps the lock until the handler gives up, or for [`max_hold`](Self::max_hold) at
    /// most. So limit the time in which the handler reads, in all and not for each piece.
    pub fn stream_body(mut self) -> Self {
        self.key.rules_mut().body_limit = None;
        self
    }

    /// Sets how many different keys a request may want; 16 by default. A request that wants more gets a 400.
    ///
    /// Each key is work for every node. Where a client lists the keys, this limits the work of one request.
    /// [`lock_all`](Redlock::lock_all) has a limit of its own, which is 1024.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.lock = self.lock.max_keys(keys);
        self
    }

    /// Sets a prefix for all keys of this layer. None by default.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.key.rules_mut().prefix = prefix.as_ref().into();
        self
    }

    /// Takes locks for requests with any method, even the safe ones.
    pub fn all_methods(mut self) -> Self {
        self.key.rules_mut().methods = Methods::All;
        self
    }

    /// Takes locks for requests with these methods only. Other requests pass without a lock.
    ///
    /// GET, HEAD and CONNECT are one method here. A HEAD runs the handler of the GET, and the handshake of a WebSocket
    /// is a GET over HTTP/1 and a CONNECT over HTTP/2.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.key.rules_mut().methods = Methods::these(methods);
        self
    }

    /// Drops a handler when its client goes away. Its lock is released at once, or as
    /// [`on_cancel`](Self::on_cancel) says.
    ///
    /// By default a handler runs to its end under the lock, in a task of its own. Otherwise an operation that it has
    /// started elsewhere, such as a database statement, would go on without the lock. If another layer further out
    /// holds a lock, that layer decides for both.
    pub fn cancel_on_disconnect(mut self) -> Self {
        self.cancels = true;
        self
    }

    /// Sets what happens to the lock of a request that is cut short: its handler panics or is dropped, or the body
    /// that [holds the lock](Self::hold_until_body_end) is dropped. By default the lock is released at once
    /// ([`OnCancel::Release`]).
    ///
    /// ```
    /// # use redlock_axum::{CompositeKey, LockLayer};
    /// use redlock_axum::{OnCancel, OnLost};
    ///
    /// # fn configure(layer: LockLayer<CompositeKey>) -> LockLayer<CompositeKey> {
    /// layer
    ///     .cancel_on_disconnect()
    ///     .on_cancel(OnCancel::Expire) // a database statement may still run
    ///     .on_lost(OnLost::Cancel) // a handler without its lock must stop
    /// # }
    /// ```
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.lock = self.lock.on_cancel(on_cancel);
        self
    }

    /// Sets what happens to the response if the lock is lost while the handler runs. By default the handler goes on,
    /// and the response does not change ([`OnLost::Signal`]). See [`on_cancel`](Self::on_cancel) for an example.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.lock = self.lock.on_lost(on_lost);
        self
    }

    /// Holds the lock until the response's body has been sent or is dropped, but for at most `max` after the handler
    /// has responded. After `max` the lock is released, and the body goes on. So a client that reads slowly does not
    /// block other requests for longer.
    pub fn hold_until_body_end(mut self, max: Duration) -> Self {
        self.body_end = Some(max);
        self
    }

    /// Sets whether handlers run *without a lock* while no quorum of nodes is available: for routes where that is better
    /// than a 503. Then there is no [`Locked`](crate::Locked), so extract `Option<Locked>`.
    ///
    /// During an outage each request is delayed by [`wait`](Self::wait), even with
    /// [`fail_fast`](LockOptions::fail_fast), so choose a short one. [`redlock_tower::LockLayer::fail_open`] says how
    /// short, after which errors the handler does not run all the same, and how such requests are reported.
    pub fn fail_open(mut self, fails_open: bool) -> Self {
        self.lock = self.lock.fail_open(fails_open);
        self
    }

    /// Sets the label of this layer in logs and metrics, as their attribute `label`; `default` by default. It is also
    /// the [label](LockOptions::label) of the layer's locks, and in the body of a 500 if the layer is misconfigured.
    pub fn label(mut self, label: &'static str) -> Self {
        self.lock = self.lock.label(label);
        self.key.rules_mut().label = label;
        self.policy_mut().label = label;
        self
    }

    /// Registers each handler that holds a lock with `tasks`, so that a shutdown can wait for these handlers.
    ///
    /// At shutdown, stop the server, close the tracker, [wait](TaskTracker::wait) for it, and then call
    /// [`Redlock::shutdown`].
    pub fn tasks(mut self, tasks: TaskTracker) -> Self {
        self.lock = self.lock.tasks(tasks);
        self
    }

    /// Sets the minimum `Retry-After` of responses to requests that got no lock; 1 s by default.
    ///
    /// If the expected wait is longer, it counts instead. The layer estimates it from the recent holds of the lock. A
    /// random part of up to one `delay` is added, so that clients do not all come back at once.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.policy_mut().retry_after = delay;
        self
    }

    /// Sets the status for requests whose wait ended without a lock, instead of 423.
    ///
    /// Common choices are 409, 429, and a 2xx for webhooks that must not be sent again. With a 2xx the response has no
    /// `Retry-After`, and with 204 it has no body.
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.policy_mut().contended = Some(status);
        self
    }

    /// Replaces the problem JSON by responses of your own.
    ///
    /// ```
    /// # use redlock_axum::{CompositeKey, LockLayer};
    /// # fn configure(layer: LockLayer<CompositeKey>) -> LockLayer<CompositeKey> {
    /// layer.rejection(|problem| (problem.status(), "please try again"))
    /// # }
    /// ```
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

impl<K> fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("methods", &self.key.rules().methods)
            .field("body_end", &self.body_end)
            .finish_non_exhaustive()
    }
}

impl<S, K: Clone> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService {
            inner,
            layer: self.clone(),
        }
    }
}
