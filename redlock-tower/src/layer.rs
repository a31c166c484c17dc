use std::{future::pending, panic::resume_unwind, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures::future::{Either, select};
use redlock_tokio::{LockOptions, Permits, Redlock, errors::OptionsError};
use tokio_util::task::TaskTracker;
use tower_layer::Layer;
use tracing::Instrument;

use crate::{
    CallError, CallGuard, ExtractKey, LockService, Locked, OnCancel, OnLost, rules::Rules,
};

/// A layer that serialises calls with the same key, in every process that locks over the same nodes.
///
/// [`LockService`] describes what happens to a call. The layer has shortcuts for the options `ttl`, `wait`,
/// `max_hold`, `fenced`, `max_waiters_per_key` and `label`. [`options`](Self::options) sets all others.
///
/// ```
/// use std::{convert::Infallible, time::Duration};
///
/// use redlock_tokio::{LockOptions, Redlock};
/// use redlock_tower::{LockLayer, OnCancel, OnLost};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::embedded().await?;
/// let layer = LockLayer::new(redlock, |order: &u64| *order)
///     .prefix("order:")
///     .wait(Duration::from_secs(2))
///     .max_hold(Duration::from_secs(30))
///     .max_waiters_total(1000)
///     .on_cancel(OnCancel::Expire) // a database statement may still run
///     .on_lost(OnLost::Cancel) // a call without its lock must stop
///     .options(LockOptions::new().handover(false))
///     .label("orders");
/// layer.check()?; // fails now if an option is invalid
///
/// let ship = service_fn(async |order: u64| Ok::<_, Infallible>(order));
/// assert_eq!(layer.layer(ship).oneshot(42).await?, 42);
/// # Ok(())
/// # }
/// ```
///
/// # Behind a buffer in a task
///
/// A service with this layer behind `ServiceBuilder::buffer` does not compile in an `async` block that is spawned:
/// "higher-ranked lifetime error". The type of the buffer names the layer's boxed future, and the compiler cannot prove
/// that such a type is `Send` within the block. Box the service by [`boxed_clone`](tower::ServiceExt::boxed_clone), or
/// return it from a function as an `impl Service`.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<K, H = ()> {
    /// Shared with the services, since axum makes a new service for each request in some routers.
    rules: Arc<Rules>,
    key: K,
    pub(crate) share: H,
    /// Whether a call that has a lock runs in a task of its own.
    is_detached: bool,
}

impl<K> LockLayer<K> {
    /// Creates a layer that takes the key of each call from an [`ExtractKey`](crate::ExtractKey), such as a closure
    /// `|request: &Request| ..`.
    pub fn new(redlock: Redlock, key: K) -> Self {
        Self {
            rules: Arc::new(Rules::new(redlock)),
            key,
            share: (),
            is_detached: false,
        }
    }
}

impl<K, H> LockLayer<K, H> {
    /// Sets options for the layer's locks. Options that are not set here keep their earlier value, and then fall
    /// back to the defaults of the [`Redlock`].
    pub fn options(mut self, options: LockOptions) -> Self {
        let rules = self.rules_mut();
        rules.options = options.or(rules.options);
        self
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks. By default the value of the [`Redlock`], which is 10 s
    /// unless its builder sets another.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets how long a call [waits](LockOptions::wait) for its lock. By default the value of the [`Redlock`], which
    /// is 5 s unless its builder sets another.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets for how long a call may [hold](LockOptions::max_hold) its lock. By default the value of the [`Redlock`],
    /// which is 60 s unless its builder sets another.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Sets whether the locks have a [fencing token](LockOptions::fenced), which the inner service gets from
    /// [`Hold::fencing_token`](redlock_tokio::Hold::fencing_token). A call that wants
    /// several keys has one token for all of them. A call that [reads](crate::LockRequest::read) has none.
    pub fn fenced(self, fenced: bool) -> Self {
        self.options(LockOptions::new().fenced(fenced))
    }

    /// Lets up to `permits` calls with one key run at once, in the whole fleet, instead of one. A call takes a permit
    /// of the [semaphore](Redlock::semaphore) with its key. There can be 1 to 128 permits; [`check`](Self::check)
    /// refuses others.
    ///
    /// A call with a [number of its own](crate::LockRequest::permits) takes precedence. A call that wants several keys,
    /// or [reads](crate::LockRequest::read) or [writes](crate::LockRequest::write), fails with
    /// [`KeyRejection::Layer`](crate::KeyRejection::Layer).
    pub fn permits(mut self, permits: usize) -> Self {
        self.rules_mut().permits = Some(permits);
        self
    }

    /// Sets how many calls may [wait](LockOptions::max_waiters_per_key) for one key in this process. Further calls
    /// fail with [`CallError::QueueFull`](crate::CallError::QueueFull).
    ///
    /// By default the value of the [`Redlock`], which is 1024 unless its builder sets another.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets how many calls of this layer may wait behind other calls, for any key. Further calls that would have to
    /// wait fail with [`CallError::QueueFull`](crate::CallError::QueueFull).
    ///
    /// A call waits behind another one if that one has or wants the same key, in this process. So the only call for a
    /// key is never refused, even if another process holds the key. By default there is no limit except those of the
    /// [`Redlock`].
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.rules_mut().max_waiters_total = waiters;
        self
    }

    /// Sets how many different keys a call may want; 16 by default. Further keys fail the call with
    /// [`KeyRejection::TooManyKeys`](crate::KeyRejection::TooManyKeys).
    ///
    /// Each key is work for every node. Where a client lists the keys, this limits the work of one call.
    /// [`lock_all`](Redlock::lock_all) has a limit of its own, which is 1024.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.rules_mut().max_keys = keys;
        self
    }

    /// Sets a prefix for all keys of this layer, so that layers for different resources do not share a lock by
    /// accident. None by default.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.rules_mut().prefix = prefix.as_ref().into();
        self
    }

    /// Sets what happens to a call whose lock is lost while it runs. By default the call goes on, and the response
    /// does not change ([`OnLost::Signal`]).
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.rules_mut().on_lost = on_lost;
        self
    }

    /// Sets what happens to the lock of a call that panics or is dropped before its end. By default the lock is
    /// released at once ([`OnCancel::Release`]).
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.rules_mut().on_cancel = on_cancel;
        self
    }

    /// Sets whether calls run *without a lock* while no quorum of nodes is available: for work that is better done
    /// twice than not at all. By default they fail.
    ///
    /// A call first tries to get its lock for up to [`wait`](Self::wait), even with
    /// [`fail_fast`](LockOptions::fail_fast): what is known of the nodes can be out of date, and another call may hold
    /// the lock. During an outage each call is delayed by that time, so choose a short `wait`. But with less than
    /// 0.1 s, a call may run without a lock just after an outage, before this process has connected again. Contention,
    /// an invalid key, slow nodes, [overload](redlock_tokio::LockError::Overloaded) by this process and a shutdown
    /// still fail the call: then other calls may hold the lock.
    ///
    /// Each such call is an [event](redlock_tokio::events::Event::FailedOpen) for observers. The layer logs a warning
    /// at most once in 10 s, with the number of warnings that it withheld.
    pub fn fail_open(mut self, fails_open: bool) -> Self {
        self.rules_mut().fail_open = fails_open.then(Default::default);
        self
    }

    /// Sets the label of this layer in logs and metrics, as their attribute `label`; `default` by default. It is also
    /// the [label](LockOptions::label) of the layer's locks.
    ///
    /// The metrics never contain a key, nor do the logs, unless the [`Redlock`] was built with
    /// [`log_keys`](redlock_tokio::RedlockBuilder::log_keys).
    pub fn label(mut self, label: &'static str) -> Self {
        self.rules_mut().label = label;
        self.options(LockOptions::new().label(label))
    }

    /// Checks the options, so that a service can report invalid ones when it starts. Otherwise each call fails with
    /// [`CallError::Misconfigured`](crate::CallError::Misconfigured).
    ///
    /// # Errors
    ///
    /// Returns the option that is invalid, and why.
    pub fn check(&self) -> Result<(), OptionsError> {
        if let Some(permits) = self.rules.permits {
            Permits::new(permits)?;
        }
        self.rules.redlock.check(self.rules.options)
    }

    /// Runs each call that has a lock in its own task, so that the call finishes even if its caller goes away. So no
    /// lock is released while its call still runs.
    ///
    /// By default a caller that goes away drops the inner call too, and the lock is released at once. An operation that
    /// the call has started elsewhere, such as a database statement, may then go on without the lock.
    ///
    /// A caller that goes away while it *waits* for the lock leaves the queue all the same. A call that panics panics
    /// in its caller too. The task has the span of its caller, but not its task-locals. Outside a tokio runtime, a call
    /// with a lock panics.
    pub fn detached(mut self) -> Self {
        self.is_detached = true;
        self
    }

    /// Registers each call that holds a lock with `tasks`, so that a shutdown can wait for these calls.
    ///
    /// At shutdown, close the tracker and [wait](TaskTracker::wait) for it, and then call [`Redlock::shutdown`].
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use redlock_tokio::Redlock;
    /// use redlock_tower::{LockLayer, TaskTracker};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// let tasks = TaskTracker::new();
    /// let key = |order: &u64| format!("order:{order}");
    /// let service = LockLayer::new(redlock.clone(), key)
    ///     .detached()
    ///     .tasks(tasks.clone())
    ///     .layer(service_fn(async |order: u64| Ok::<_, Infallible>(order)));
    /// service.oneshot(42).await?;
    ///
    /// tasks.close();
    /// tasks.wait().await; // every call has ended
    /// redlock.shutdown(None).await; // every release is delivered
    /// # Ok(())
    /// # }
    /// ```
    pub fn tasks(mut self, tasks: TaskTracker) -> Self {
        self.rules_mut().tasks = Some(tasks);
        self
    }

    /// Holds the lock until the response's body has ended or is dropped, but for at most `max` after the inner
    /// service has responded. After `max` the lock is released, and the body goes on. So a client that reads slowly
    /// does not block other calls for longer.
    ///
    /// Call it last: the result has no other options.
    #[cfg(feature = "http")]
    pub fn hold_until_body_end(self, max: Duration) -> crate::HoldBodyLayer<K, H> {
        crate::HoldBodyLayer::new(self, max)
    }

    /// Passes the lock to the inner service, by a [`ShareHold`](crate::ShareHold) such as a closure
    /// `|request: &mut Request, lock: Locked| ..`. See [`Locked`](crate::Locked) for an example.
    pub fn share_hold<H2>(self, share: H2) -> LockLayer<K, H2> {
        LockLayer {
            rules: self.rules,
            key: self.key,
            share,
            is_detached: self.is_detached,
        }
    }

    /// Replaces the extractor of the keys.
    pub fn with_key<K2>(self, key: K2) -> LockLayer<K2, H> {
        LockLayer {
            rules: self.rules,
            key,
            share: self.share,
            is_detached: self.is_detached,
        }
    }

    /// Makes one call, as a [`LockService`] does, with a closure in place of the inner service. The closure gets the
    /// request and its lock, unless the request passes without one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for the lock gives up the wait, and the work does not begin. Dropping it
    /// later drops the work and releases the lock, unless the layer is [detached](Self::detached).
    ///
    /// # Errors
    ///
    /// Fails with the error of the work, or with the reason why it did not run under its lock.
    pub async fn run<Request, F, T, E>(
        &self,
        request: Request,
        work: impl FnOnce(Request, Option<Locked>) -> F,
    ) -> Result<T, CallError<E>>
    where
        K: ExtractKey<Request>,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let rules = &self.rules;
        let (request, wanted) = self.key.extract(request).await;
        let wanted = wanted.and_then(|it| it.map(|it| rules.checked(it)).transpose());
        let Some(wanted) = wanted.map_err(CallError::Key)? else {
            return work(request, None).await.map_err(CallError::Inner);
        };
        let share = rules.share_of(&wanted);
        let Some(guard) = rules.acquire(wanted).await? else {
            return work(request, None).await.map_err(CallError::Inner);
        };
        let lock = Locked::new(guard, Arc::clone(rules));
        let guard = CallGuard::new(lock.clone(), false);
        let span = tracing::debug_span!(target: "redlock", "lock_held", label = rules.label, share);
        let call = run_under(work(request, Some(lock)), guard).instrument(span);
        if !self.is_detached {
            return call.await;
        }
        let task = tokio::spawn(call.in_current_span());
        match task.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime shuts down, and drops this task too.
            Err(_) => pending().await,
        }
    }

    fn rules_mut(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }
}

/// Does the work of a call to its end, and then releases its lock.
///
/// Work that panics or is cut short is dropped before its lock, and while the thread unwinds, so that the lock is not
/// handed over to a waiter in this process.
async fn run_under<T, E>(
    work: impl Future<Output = Result<T, E>>,
    guard: CallGuard,
) -> Result<T, CallError<E>> {
    let outcome = if guard.on_lost() == OnLost::Cancel {
        let mut work = pin!(work);
        // The work begins before anything is watched, so that a call that has lost its lock was called.
        match futures::poll!(&mut work) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => match select(pin!(guard.lost()), work).await {
                Either::Left((reason, _)) => return Err(CallError::Lost(reason)),
                Either::Right((outcome, _)) => outcome,
            },
        }
    } else {
        work.await
    };
    if let Some(reason) = guard.failure() {
        return Err(CallError::Lost(reason));
    }
    guard.release();
    outcome.map_err(CallError::Inner)
}

impl<S, K: Clone, H: Clone> Layer<S> for LockLayer<K, H> {
    type Service = LockService<S, K, H>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}
