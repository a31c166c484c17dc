mod operations;
mod search;
#[cfg(feature = "test-util")]
mod tables;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::join_all;

#[cfg(feature = "test-util")]
pub use self::tables::Tables;
pub use self::{
    operations::{UnlockReport, UnlockedNode},
    search::Search,
};
use crate::{
    Event, Key, Lock, LockError, LockGuard, LockOptions, NodeStatus, OptionsError, QueueStatus,
    engine::requests::Client, key::KeySet,
};

/// A distributed lock service over independent Redis masters.
///
/// This is a handle. Clones are cheap, and share connections, queues and the task that renews locks. Build one
/// `Redlock` for each process: only requests of one `Redlock` wait in one queue. It belongs to the runtime that
/// [builds](crate::RedlockBuilder::build) it.
///
/// ```no_run
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::connect(["redis://a", "redis://b", "redis://c"]).await?;
///
/// let guard = redlock.lock("order:42").await?;
/// // .. no other process is in this section for order 42 ..
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redlock {
    client: Arc<Client>,
}

impl Redlock {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// Acquires the lock with this key, and waits if another client holds it. [`Lock`] has the options, and
    /// [`LockFuture`](crate::LockFuture) documents cost and cancel safety.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").wait(Duration::from_secs(2)).await?;
    /// assert!(guard.is_valid());
    /// drop(guard); // releases the lock in the background
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The key is any bytes, or a [`Key`]. [`Key::parts`] joins several parts into one key without ambiguity:
    ///
    /// ```
    /// # use redlock_tokio::{Key, LockError, LockGuard, Redlock};
    /// async fn lock_order(
    ///     redlock: &Redlock,
    ///     tenant: &str,
    ///     order: &str,
    /// ) -> Result<LockGuard, LockError> {
    ///     redlock.lock(Key::parts(["order", tenant, order])?).await
    /// }
    /// # let _ = lock_order;
    /// ```
    ///
    /// A lock is not reentrant: a holder that locks the same key again times out.
    ///
    /// # Errors
    ///
    /// [`LockError`] lists the errors. After each of them the lock is not held, and keys that were set on nodes are
    /// released in the background.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        let key = Key::with_prefix(&self.client.prefix, key.as_ref());
        let keys = key.map(KeySet::from).map_err(LockError::InvalidKey);
        Lock::new(Arc::clone(&self.client), keys)
    }

    /// Acquires the locks of several keys, all or none, under one guard.
    ///
    /// Two such requests never wait for each other in a circle, whatever the order of their keys. The locks exclude
    /// [`lock`](Self::lock)s of each of the keys, and locks of several resources by `node-redlock`. The cost is
    /// that of one key: one script for each node, and one round trip to the majority if all keys are free.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock_all(["account:7", "account:3"]).await?;
    /// assert!(redlock.try_lock("account:3").await.is_err());
    /// drop(guard); // releases both
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// There must be at least one key and at most [`Key::MAX_KEYS`] (1024). Together, with their prefixes, they may
    /// have at most [`Key::MAX_LEN`] bytes. Repeated keys count once. A lock of several keys may
    /// have a [fencing token](LockOptions::fenced), which fences all of them. It is never handed over within the process.
    ///
    /// # Fairness
    ///
    /// The request waits until all its keys are free. Meanwhile other requests of this process may lock the free
    /// ones. But in one of two periods of 100 ms, no later request gets any of the keys, if no older request waits for one of
    /// them.
    ///
    /// So others can lock a free key for half of the time, and a task that holds one of the keys and locks another one
    /// waits for 200 ms at most, and does not deadlock. A request can time out if one of its keys is held again and again for
    /// longer than 100 ms, or if an older request waits for one of them.
    ///
    /// This does not bind other processes. Among these, requests for several keys stand in lines of their own, so requests
    /// for one key do not wait for them. A request for up to 16 keys takes its place in the line of each key, one after the
    /// other, and tries once it is the first in all of them. While it waits for its keys to be free at the same time, it keeps
    /// requests for one key out for 130 ms every two seconds. So it can time out if some of its keys are held again and again
    /// for longer than that.
    ///
    /// A request for more keys stands in no line, and other clients may stand in none either. Then all keys must be free at
    /// the same moment, and chance decides. The request can time out if others keep each of the keys busy.
    ///
    /// # Cancel safety
    ///
    /// [`LockFuture`](crate::LockFuture) documents it.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::InvalidKey`] if the keys are not within these limits. [`LockError`] lists the other
    /// errors.
    pub fn lock_all<I>(&self, keys: I) -> Lock
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let keys = KeySet::all(&self.client.prefix, keys);
        Lock::new(
            Arc::clone(&self.client),
            keys.map_err(LockError::InvalidKey),
        )
    }

    /// Makes one attempt to acquire the lock with this key.
    ///
    /// Costs one round trip to the majority. If several clients try at the same moment, each may get the votes of a
    /// minority of the nodes, and then none gets the lock. Where one of them must win (all hosts start a job at the
    /// same second), use [`lock`](Self::lock) with a short [`wait`](Lock::wait): its attempts are spread at random.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.try_lock("order:42").await?;
    /// let error = redlock.try_lock("order:42").await.unwrap_err();
    /// assert!(error.is_contended());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up. Keys that were set on nodes are released in the background.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::Contended`] if another client holds the lock, several clients tried at once, or the
    /// key is kept for a request for several keys ([`lock_all`](Self::lock_all)).
    /// [`LockError`] lists the other errors.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<LockGuard, LockError> {
        self.lock(key).wait(Duration::ZERO).await
    }

    /// Returns the status of each node, in the order in which the nodes were given. Asks no node.
    ///
    /// ```
    /// # use redlock_tokio::{NodeState, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// for node in redlock.nodes() {
    ///     println!("{}: {}", node.address, node.state);
    ///     assert_eq!(node.state, NodeState::Voting);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.client.nodes()
    }

    /// Returns the [prefix](crate::RedlockBuilder::prefix) of all keys. Empty by default.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        self.client.prefix.as_bytes()
    }

    /// Returns whether both are handles of one lock service.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }

    /// Checks whether locks with these options are possible here. Asks no node.
    ///
    /// Call this method when a service starts, so that a mistake does not wait for the first lock.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let options = LockOptions::new().ttl(Duration::from_secs(1));
    /// redlock.check(options)?;
    /// let too_seldom = options.renew_every(Duration::from_secs(1));
    /// assert!(redlock.check(too_seldom).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails where a lock would fail with [`LockError::InvalidOptions`].
    pub fn check(&self, options: LockOptions) -> Result<(), OptionsError> {
        self.client
            .resolve(options.or(self.client.defaults))
            .map(|_| ())
    }

    /// Returns how many keys are held or wanted within this process, and how many requests wait for their turn.
    /// Asks no node.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let waiter = tokio::spawn(redlock.lock("order:42").into_future());
    /// tokio::task::yield_now().await;
    /// let queue = redlock.queue();
    /// assert_eq!((queue.keys, queue.waiting), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn queue(&self) -> QueueStatus {
        self.client.queue()
    }

    /// Returns how long a new request for this lock would probably wait. Asks no node.
    ///
    /// The estimate multiplies the number of earlier requests of this process, and of
    /// [processes ahead](Self::processes_ahead), by the median of the last eight holds of this process. The part for this
    /// process never exceeds the time after which the earlier requests give up. `None` means that no request is there, or that
    /// fewer than three holds are known. Holds of a lock that no task has or wants are forgotten after a
    /// minute.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// assert_eq!(redlock.expected_wait("order:42"), None); // it is free
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn expected_wait(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        let key = Key::with_prefix(&self.client.prefix, key.as_ref()).ok()?;
        let ahead = self.client.processes_ahead(&key).unwrap_or_default();
        self.client.expected_wait(&key, ahead)
    }

    /// Tells the observers that a call of a layer runs without its lock.
    #[doc(hidden)]
    pub fn note_fail_open(&self, label: &'static str) {
        let event = Event::FailedOpen { label };
        self.client.observers.tell(&event);
    }

    /// Refuses new locks, and waits until all releases are delivered, for at most `limit`: a [`Duration`], or `None` to
    /// wait as long as it takes. Call this method before the runtime ends.
    ///
    /// Requests that wait for a lock fail with [`LockError::ShutDown`]. A release that cannot be delivered is
    /// dropped when its key must have expired. If nodes are down, this takes about one ttl, plus the time of a
    /// request and of an attempt to connect that have already begun (about a second, and `connect_timeout`).
    /// Releases that are not delivered at the limit count as abandoned. They are still sent while the runtime lives.
    ///
    /// Locks that are held stay held: their guards are renewed, and can be released. If one of them ends meanwhile, its
    /// release is waited for, too. Drop the guards first.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// drop(redlock.lock("order:42").await?);
    /// let report = redlock.shutdown(Duration::from_secs(5)).await;
    /// assert_eq!((report.held, report.abandoned), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the deliveries go on in the background, and the method can be called again.
    pub async fn shutdown(&self, limit: impl Into<Option<Duration>>) -> ShutdownReport {
        let limit = limit.into();
        self.refuse_locks();
        let timed_out = match limit {
            Some(limit) => {
                let drained = self.client.clock.timeout(limit, self.drain());
                drained.await.is_none()
            }
            // Without a timer, so on any executor.
            None => {
                self.drain().await;
                false
            }
        };
        self.shutdown_report(timed_out)
    }

    /// Refuses new locks, and ends the leases that do not hold their locks yet.
    pub(crate) fn refuse_locks(&self) {
        self.client.shut_down.store(true, Ordering::SeqCst);
        self.client.stop_acquiring();
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Waits until all releases so far are delivered.
    async fn drain(&self) {
        join_all(self.client.lanes.iter().map(|lane| lane.drain())).await;
    }

    fn shutdown_report(&self, timed_out: bool) -> ShutdownReport {
        ShutdownReport {
            abandoned: self.client.undelivered(),
            held: self.client.held_count(),
            timed_out,
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.client.lanes.iter();
        let addresses: Vec<_> = lanes.map(|lane| &lane.address).collect();
        f.debug_struct("Redlock")
            .field("nodes", &addresses)
            .finish_non_exhaustive()
    }
}

/// The work that [`Redlock::shutdown`] could not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many releases were never delivered, each to one node, since the [`Redlock`] was built (not only since
    /// the shutdown began). Their keys expire after the ttl.
    pub abandoned: usize,
    /// How many locks are still held.
    pub held: usize,
    /// Whether the shutdown stopped waiting because of its limit.
    pub timed_out: bool,
}
