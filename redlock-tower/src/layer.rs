use std::time::Duration;

use redlock_tokio::{LockOptions, OptionsError, Redlock};
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::{
    Detached, ExtractKey, Inline, LockService, OnCancel, OnLost, rules::Rules, telemetry::Telemetry,
};

/// Serialises calls with the same key, in every process that locks over the same nodes.
///
/// See the [crate's page](crate) for an example, and [`LockService`] for what happens when.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct LockLayer<K, H = (), M = Inline> {
    rules: Rules,
    key: K,
    share: H,
    mode: M,
}

impl<K> LockLayer<K> {
    /// Creates a layer that takes each request's key from `key`, an
    /// [`ExtractKey`](crate::ExtractKey).
    pub fn new(redlock: Redlock, key: K) -> Self {
        Self {
            rules: Rules::new(redlock),
            key,
            share: (),
            mode: Inline::default(),
        }
    }
}

impl<K, H, M> LockLayer<K, H, M> {
    /// Sets options for the layer's locks. What they leave open falls back to what was set
    /// before, and then to the defaults of the [`Redlock`].
    pub fn options(mut self, options: LockOptions) -> Self {
        self.rules.options = options.or(self.rules.options);
        self
    }

    /// Sets how long a call [waits](LockOptions::wait) for its lock.
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets the [time to live](LockOptions::ttl) of the locks; at most
    /// [`RedlockBuilder::max_ttl`](redlock_tokio::RedlockBuilder::max_ttl), 10 s unless it is set.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets for how long a call may [hold](LockOptions::max_hold) its lock.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Acquires the locks with a [fencing token](LockOptions::fenced), which the view of the lock
    /// [has](redlock_tokio::Hold::fencing_token). Calls that want several keys fail then.
    pub fn fenced(self) -> Self {
        self.options(LockOptions::new().fenced())
    }

    /// Checks the options, so that a service says what is wrong with them when it starts. Otherwise each
    /// call fails with [`LockError::Misconfigured`](crate::LockError::Misconfigured).
    ///
    /// # Errors
    ///
    /// Says which option makes no lock, and why. A tuple of keys cannot be [fenced](Self::fenced); that a closure
    /// makes several keys is only seen when a call comes.
    pub fn check<Request>(&self) -> Result<(), OptionsError>
    where
        K: ExtractKey<Request>,
    {
        let (redlock, options) = (&self.rules.redlock, self.rules.options);
        if self.key.makes_several() {
            redlock.check_all(options)
        } else {
            redlock.check(options)
        }
    }

    /// Sets what goes in front of all keys, so that layers for different things never mean the same
    /// lock. Nothing by default.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.rules.prefix = prefix.as_ref().into();
        self
    }

    /// Sets how many calls may wait behind this layer, whatever their keys, before others fail with
    /// [`LockError::QueueFull`](crate::LockError::QueueFull). Those whose lock is on its way are among
    /// them. No limit by default but those of
    /// [`LockOptions::max_waiters_per_key`] and the [`Redlock`].
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.rules.max_waiters_total = waiters;
        self
    }

    /// Sets what becomes of a call whose lock is lost while it runs.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.rules.on_lost = on_lost;
        self
    }

    /// Sets what becomes of the lock of a call that does not come to its end.
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.rules.on_cancel = on_cancel;
        self
    }

    /// Lets calls through *without a lock* when no lock is available: for work that is better
    /// done twice than not at all. Each is logged and counted.
    pub fn fail_open(mut self) -> Self {
        self.rules.fail_open = true;
        self
    }

    /// Sets the name under which this layer shows in logs and metrics. Never the key.
    pub fn policy(mut self, name: &str) -> Self {
        self.rules.telemetry = Telemetry::new(name);
        self
    }

    /// Hands the lock to the inner service, by way of a [`ShareHold`](crate::ShareHold).
    pub fn share_hold<H2>(self, share: H2) -> LockLayer<K, H2, M> {
        LockLayer {
            rules: self.rules,
            key: self.key,
            share,
            mode: self.mode,
        }
    }

    /// Takes keys from another extractor.
    pub fn with_key<K2>(self, key: K2) -> LockLayer<K2, H, M> {
        LockLayer {
            rules: self.rules,
            key,
            share: self.share,
            mode: self.mode,
        }
    }

    fn mode<M2>(self, mode: M2) -> LockLayer<K, H, M2> {
        LockLayer {
            rules: self.rules,
            key: self.key,
            share: self.share,
            mode,
        }
    }
}

impl<K, H, R> LockLayer<K, H, Inline<R>> {
    /// Runs calls in tasks of their own, to their end, whether their callers wait or go away; see
    /// [`Detached`].
    pub fn detached(self) -> LockLayer<K, H, Detached<R>>
    where
        R: Clone,
    {
        self.detached_in(TaskTracker::new())
    }

    /// Does so in tasks that are tracked by this tracker, so that a shutdown can wait for them.
    pub fn detached_in(self, tasks: TaskTracker) -> LockLayer<K, H, Detached<R>>
    where
        R: Clone,
    {
        let release = self.mode.release.clone();
        self.mode(Detached { release, tasks })
    }
}

impl<K, H, R> LockLayer<K, H, Detached<R>> {
    /// Returns the tracker of the calls' tasks.
    #[must_use]
    pub fn tasks(&self) -> &TaskTracker {
        &self.mode.tasks
    }
}

#[cfg(feature = "http")]
impl<K, H> LockLayer<K, H, Inline<crate::AtHead>> {
    /// Holds the lock until the response's body has ended or is dropped, but no longer than `max` after
    /// its head.
    pub fn hold_until_body_end(self, max: Duration) -> LockLayer<K, H, Inline<crate::AtBodyEnd>> {
        let release = crate::AtBodyEnd { max };
        self.mode(Inline { release })
    }
}

#[cfg(feature = "http")]
impl<K, H> LockLayer<K, H, Detached<crate::AtHead>> {
    /// Holds the lock until the response's body has ended or is dropped, but no longer than `max` after
    /// its head.
    pub fn hold_until_body_end(self, max: Duration) -> LockLayer<K, H, Detached<crate::AtBodyEnd>> {
        let release = crate::AtBodyEnd { max };
        let tasks = self.mode.tasks.clone();
        self.mode(Detached { release, tasks })
    }
}

impl<S, K: Clone, H: Clone, M: Clone> Layer<S> for LockLayer<K, H, M> {
    type Service = LockService<S, K, H, M>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(
            inner,
            self.rules.clone(),
            self.key.clone(),
            self.share.clone(),
            self.mode.clone(),
        )
    }
}
