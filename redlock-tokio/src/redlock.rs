use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::join_all;

use crate::{
    BuildError, Hold, Key, Lock, LockError, LockGuard, LockOptions, NodeStatus, NotReady,
    OptionsError, RedlockBuilder, WithLockError, engine::shared::Shared, key::KeySet, readiness,
};

/// A distributed lock service over independent Redis masters.
///
/// A handle: clones are cheap and share connections, lanes and the task that renews.
///
/// ```no_run
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::connect(["redis://a", "redis://b", "redis://c"]).await?;
///
/// let guard = redlock.lock("order:42").await?;
/// // .. nobody else in the fleet is here for order 42 ..
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redlock {
    shared: Arc<Shared>,
}

impl Redlock {
    /// Connects to the masters at these URLs, with default settings.
    ///
    /// Succeeds even if none of them is up: locks fail with [`LockError::NoQuorum`] until a majority
    /// is.
    ///
    /// # Errors
    ///
    /// See [`RedlockBuilder::build`], also for what it waits for.
    pub async fn connect<I>(urls: I) -> Result<Self, BuildError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::builder().nodes(urls).build().await
    }

    /// Creates a lock over five nodes within this process: for trying things out, for tests, and for
    /// services that run as a single process.
    ///
    /// Goes by tokio's clock, so that on a paused runtime hours pass in a moment:
    ///
    /// ```
    /// # use redlock_tokio::{LossReason, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// tokio::time::sleep(Duration::from_secs(3600)).await;
    /// assert!(!guard.is_valid()); // longer than max_hold
    /// assert_eq!(guard.lost().await, LossReason::MaxHold);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails outside of a tokio runtime.
    pub async fn embedded() -> Result<Self, BuildError> {
        Self::builder().embedded().build().await
    }

    /// Starts to configure a lock.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Acquires the lock with this key, waiting for it if another client holds it. See [`Lock`] for
    /// options, and [`LockFuture`](crate::LockFuture) for cost and cancel safety.
    ///
    /// The key is any bytes, or a [`Key`]. [`Key::parts`] makes one of several parts:
    ///
    /// ```
    /// # use redlock_tokio::{Key, LockError, LockGuard, Redlock};
    /// async fn lock_order(redlock: &Redlock, tenant: &str, order: &str) -> Result<LockGuard, LockError> {
    ///     redlock.lock(Key::parts(["order", tenant, order])?).await
    /// }
    /// # let _ = lock_order;
    /// ```
    ///
    /// A lock is not reentrant: a holder that locks it again times out.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. Whichever it is, the lock is not held, and what was set on any node is
    /// being released.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        let key = Key::with_prefix(&self.shared.prefix, key.as_ref());
        Lock::new(self.clone(), key.map(KeySet::from))
    }

    /// Acquires the locks of several keys at once: all of them or none. They have one guard.
    ///
    /// No two that want the same keys ever wait for each other, in whatever order they name them.
    /// Contends as it should with [`lock`](Self::lock)s of each of the keys, and with what
    /// `node-redlock` does with several resources. Costs what one key does: one script for each node,
    /// one round trip to the majority if all are free.
    ///
    /// Within this process others go first while one of the keys is taken, but at most 8 that asked for one
    /// of the keys later, and none once it has waited for 100 ms: its keys are then reserved for it, as soon
    /// as nobody that asked earlier waits for any of them. A key that is free stays free until all are. A
    /// reservation that keeps somebody from a free key lapses after 50 ms: those that wait at that moment go
    /// first. Then none of the keys is reserved for as long as this reservation lasted, and the next one is
    /// to be earned by 8 more or 100 ms more. It lasts twice as long, but never longer than 200 ms. So a key
    /// that nobody holds can be had for at least half of the time, a task that holds one of the keys and locks
    /// another is late by that time, and no two ever wait for each other. Where each key is always held,
    /// and for longer than 200 ms at a time, a lock of several may wait for its whole limit. Other processes
    /// are not bound by this.
    ///
    /// The keys together must not be longer than one [`Key`] may be, and are locked without a
    /// [fence](Lock::fenced). They are never handed over within the process.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// let (from, to) = ("account:7", "account:3");
    /// let guard = redlock.lock_all([from, to]).await?;
    /// // .. nobody else changes either of them ..
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub fn lock_all<I>(&self, keys: I) -> Lock
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        Lock::new(self.clone(), KeySet::all(&self.shared.prefix, keys))
    }

    /// Makes one attempt to acquire the lock with this key.
    ///
    /// Costs one round trip to the majority. If several clients try at the same moment, each may
    /// get a minority of the nodes, and none the lock. Where one of them must win (a job that all
    /// hosts start at the same second), use [`lock`](Self::lock) with a short
    /// [`wait`](Lock::wait), whose retries are spread at random.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up, and releases in the background what was set on any node.
    ///
    /// # Errors
    ///
    /// [`LockError::Contended`] if another client holds it or several tried at once; see
    /// [`LockError`] for the rest.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<LockGuard, LockError> {
        self.lock(key).wait(Duration::ZERO).await
    }

    /// Acquires the lock, does the work and releases the lock. If the lock is lost meanwhile, the
    /// work is dropped where it stands.
    ///
    /// The work gets a view of the lock, to ask [how long it has](Hold::remaining) or to
    /// [extend](Hold::extend) it. With options it is `redlock.lock(key).ttl(..).with(work)`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Errors
    ///
    /// Says whether the work was never begun, or was cut off. A loss that falls between the end of
    /// the work and the release is reported too, since the end of the work was not protected.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// let total = redlock.with_lock("order:42", async |_hold| 6 * 7).await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_lock<T>(
        &self,
        key: impl AsRef<[u8]>,
        work: impl AsyncFnOnce(&Hold) -> T,
    ) -> Result<T, WithLockError> {
        self.lock(key).with(work).await
    }

    /// Returns how each node is, in the order in which they were given. Asks nobody, so it costs
    /// nothing.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.shared.nodes()
    }

    /// Waits until a majority of nodes may vote, for at most `limit`: for a service to call when it starts,
    /// and, with a limit of zero, for its health check.
    ///
    /// Servers that have just come up have no vote for [`max_ttl`](RedlockBuilder::max_ttl) and some more
    /// (10.2 s after the connection at most by default), so 15 s is a good limit after a start of all of them.
    /// [`Duration::MAX`] means for ever.
    ///
    /// Asks no node: it goes by what the connections have told, which can be a second old. That a node
    /// has fallen silent shows only when a lock is asked for, or after five seconds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`NotReady::TooFewVote`] tells which nodes may not vote yet, why, and for how long, if that is
    /// known; [`NotReady::ShutDown`] comes within a second.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::embedded().await?;
    /// redlock.ready(Duration::from_secs(15)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self, limit: Duration) -> Result<(), NotReady> {
        readiness::ready(&self.shared, limit).await
    }

    /// Returns whether both are handles of one lock service.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Checks that locks with these options can be had here, so that a service says so when it starts and
    /// not when the first of them is wanted. Asks nobody.
    ///
    /// # Errors
    ///
    /// As [`LockError::InvalidOptions`] would.
    pub fn check(&self, options: LockOptions) -> Result<(), OptionsError> {
        self.shared
            .resolve(options.or(self.shared.defaults))
            .map(|_| ())
    }

    /// Does so for locks of several keys, which cannot be [fenced](LockOptions::fenced).
    ///
    /// # Errors
    ///
    /// As [`LockError::InvalidOptions`] would.
    pub fn check_all(&self, options: LockOptions) -> Result<(), OptionsError> {
        self.check(options)?;
        if options.or(self.shared.defaults).is_fenced() {
            return Err(OptionsError::SeveralFenced);
        }
        Ok(())
    }

    /// Returns how many keys are held or wanted within this process, and how many wait for their turn.
    /// Asks nobody.
    #[must_use]
    pub fn queue(&self) -> QueueStatus {
        let (keys, waiting) = self.shared.queue.len();
        QueueStatus { keys, waiting }
    }

    /// Returns how long one that asked for the lock now would expect to wait for those before it in this
    /// process, by the median of the last eight holds: but no longer than those that wait already, because
    /// they have gone by then. `None` if nobody is there, or fewer than three holds are known; those of a
    /// lock that nobody holds or wants are forgotten after a minute. Asks nobody.
    #[must_use]
    pub fn expected_wait(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        let key = Key::with_prefix(&self.shared.prefix, key.as_ref()).ok()?;
        self.shared
            .queue
            .expected_wait(&key, self.shared.clock.now())
    }

    /// Gives out no more locks (whoever waits for one gets [`LockError::ShutDown`]), and waits until
    /// every release that was handed over is delivered, or pointless because its key has expired.
    /// Call it before the runtime ends.
    ///
    /// Locks that are still held are not touched: their guards go on being renewed, and can be
    /// released. Drop them first.
    ///
    /// Takes at most about one ttl, if nodes are down that are owed releases; see
    /// [`shutdown_within`](Self::shutdown_within) for a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: deliveries go on in the background, and it can be called again.
    pub async fn shutdown(&self) -> ShutdownReport {
        self.shutdown_within(Duration::MAX).await
    }

    /// Does the same, but waits no longer than `limit`. What is not delivered then counts as
    /// abandoned; it is still tried for as long as the runtime lives.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`shutdown`](Self::shutdown) is.
    pub async fn shutdown_within(&self, limit: Duration) -> ShutdownReport {
        self.shared.shut_down.store(true, Ordering::SeqCst);
        for cell in self.shared.timers.leases() {
            cell.stop_acquiring();
        }
        let drained = join_all(self.shared.lanes.iter().map(|lane| lane.drain()));
        let timed_out = tokio::time::timeout(limit, drained).await.is_err();
        let undelivered: usize = self
            .shared
            .lanes
            .iter()
            .map(|lane| lane.undelivered())
            .sum();
        ShutdownReport {
            abandoned: undelivered + self.shared.undeliverable.load(Ordering::Relaxed),
            held: self.shared.held.load(Ordering::Relaxed),
            timed_out,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.shared.lanes.iter().map(|it| it.address()).collect();
        f.debug_struct("Redlock")
            .field("nodes", &addresses)
            .finish_non_exhaustive()
    }
}

/// The locks that are held or wanted within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The keys that are held or wanted.
    pub keys: usize,
    /// Those who wait behind somebody else of this process.
    pub waiting: usize,
}

/// What [`Redlock::shutdown`] could not bring to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Releases that were never delivered since the lock service was built, each to one node. Their
    /// keys expire by themselves.
    pub abandoned: usize,
    /// Locks that are still held.
    pub held: usize,
    /// Whether it stopped waiting because of its limit.
    pub timed_out: bool,
}
