use std::{sync::Arc, time::Duration};

use redlock_tokio::{LockOptions, OptionsError, Permits, Redlock};
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::{
    Detached, Inline, LockService, OnCancel, OnLost,
    rules::Rules,
    telemetry::{self, Telemetry},
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
/// use redlock_tower::LockLayer;
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
///     .options(LockOptions::new().handover(false))
///     .label("orders");
/// layer.check()?; // fails now if an option is invalid
///
/// let ship = service_fn(async |order: u64| Ok::<_, Infallible>(order));
/// assert_eq!(layer.layer(ship).oneshot(42).await?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<K, H = (), M = Inline> {
    /// Shared with the services, since axum makes a new service for each request in some routers.
    pub(crate) rules: Arc<Rules>,
    pub(crate) key: K,
    pub(crate) share: H,
    pub(crate) mode: M,
}

impl<K> LockLayer<K> {
    /// Creates a layer that takes the key of each call from an [`ExtractKey`](crate::ExtractKey), such as a closure
    /// `|request: &Request| ..`.
    ///
    /// With the feature `metrics`, it describes its metrics to the recorder that is installed by now.
    pub fn new(redlock: Redlock, key: K) -> Self {
        telemetry::describe();
        Self {
            rules: Arc::new(Rules::new(redlock)),
            key,
            share: (),
            mode: Inline::default(),
        }
    }
}

impl<K, H, M> LockLayer<K, H, M> {
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

    /// Lets up to `permits` calls with one key run at once, in the whole fleet, instead of one. A call takes a permit of
    /// the [semaphore](Redlock::semaphore) with its key. There can be 1 to 128 permits; [`check`](Self::check) refuses
    /// others.
    ///
    /// A call with a [number of its own](crate::LockRequest::permits) takes precedence. A call that wants several keys, or
    /// [reads](crate::LockRequest::read) or [writes](crate::LockRequest::write), fails with
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

    /// Runs calls *without a lock* while no quorum of nodes is available: for work that is better done twice than
    /// not at all.
    ///
    /// A call first tries to get its lock for up to [`wait`](Self::wait), even with
    /// [`fail_fast`](LockOptions::fail_fast): what is known of the nodes can be out of date, and another call may hold
    /// the lock. During an outage each call is delayed by that time, so choose a short `wait`. But with less than
    /// 0.1 s, a call may run without a lock just after an outage, before this process has connected again. Contention, an
    /// invalid key, slow nodes, [overload](redlock_tokio::LockError::Overloaded) by this process and a shutdown still
    /// fail the call: then other calls may hold the lock.
    ///
    /// Each such call is counted. The layer logs a warning at most once in 10 s, with the number of warnings that
    /// it withheld.
    pub fn fail_open(mut self) -> Self {
        self.rules_mut().fail_open.get_or_insert_default();
        self
    }

    /// Sets the label of this layer in logs and metrics, as their attribute `label`; `default` by default. It is also
    /// the [label](LockOptions::label) of the layer's locks.
    ///
    /// The metrics never contain a key, nor do the logs, unless the [`Redlock`] was built with
    /// [`log_keys`](redlock_tokio::RedlockBuilder::log_keys).
    pub fn label(mut self, label: &'static str) -> Self {
        self.rules_mut().telemetry = Telemetry::new(label);
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

    /// Passes the lock to the inner service, by a [`ShareHold`](crate::ShareHold) such as a closure
    /// `|request: &mut Request, lock: Locked| ..`. See [`Locked`](crate::Locked) for an example.
    pub fn share_hold<H2>(self, share: H2) -> LockLayer<K, H2, M> {
        LockLayer {
            rules: self.rules,
            key: self.key,
            share,
            mode: self.mode,
        }
    }

    /// Replaces the extractor of the keys.
    pub fn with_key<K2>(self, key: K2) -> LockLayer<K2, H, M> {
        LockLayer {
            rules: self.rules,
            key,
            share: self.share,
            mode: self.mode,
        }
    }

    fn rules_mut(&mut self) -> &mut Rules {
        Arc::make_mut(&mut self.rules)
    }

    fn with_mode<M2>(self, mode: M2) -> LockLayer<K, H, M2> {
        LockLayer {
            rules: self.rules,
            key: self.key,
            share: self.share,
            mode,
        }
    }
}

impl<K, H, R: Clone> LockLayer<K, H, Inline<R>> {
    /// Runs each call that has a lock in its own task, so that the call finishes even if its caller goes away; see
    /// [`Detached`].
    pub fn detached(self) -> LockLayer<K, H, Detached<R>> {
        let release = self.mode.release.clone();
        self.with_mode(Detached {
            release,
            tasks: None,
            in_place: false,
        })
    }
}

impl<K, H, R> LockLayer<K, H, Detached<R>> {
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
        self.mode.tasks = Some(tasks);
        self
    }
}

#[cfg(feature = "http")]
impl<K, H> LockLayer<K, H, Inline<crate::AtHead>> {
    /// Holds the lock until the response's body has ended or is dropped, but for at most `max` after the inner
    /// service has responded. After `max` the lock is released, and the body goes on. So a client that reads slowly
    /// does not block other calls for longer.
    pub fn hold_until_body_end(self, max: Duration) -> LockLayer<K, H, Inline<crate::AtBodyEnd>> {
        let release = crate::AtBodyEnd { max };
        self.with_mode(Inline { release })
    }
}

#[cfg(feature = "http")]
impl<K, H> LockLayer<K, H, Detached<crate::AtHead>> {
    /// Holds the lock until the response's body has ended or is dropped, but for at most `max` after the head. See the same
    /// method of layers that run their calls [inline](Inline).
    pub fn hold_until_body_end(self, max: Duration) -> LockLayer<K, H, Detached<crate::AtBodyEnd>> {
        let release = crate::AtBodyEnd { max };
        let tasks = self.mode.tasks.clone();
        self.with_mode(Detached {
            release,
            tasks,
            in_place: false,
        })
    }
}

impl<S, K: Clone, H: Clone, M: Clone> Layer<S> for LockLayer<K, H, M> {
    type Service = LockService<S, K, H, M>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}
