use std::{fmt, sync::Arc, time::Duration};

use crate::{Key, Lock, LockError, LockGuard, Redlock, engine::requests::Client, key::KeySet};

impl Redlock {
    /// Returns the lock with this key that many readers share, or one writer has. Asks no node: see
    /// [`RedlockRwLock::read`] and [`RedlockRwLock::write`].
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let catalogue = redlock.rw_lock("catalogue");
    /// let reader = catalogue.read().await?;
    /// assert!(catalogue.try_read().await.is_ok());
    /// assert!(catalogue.try_write().await.is_err());
    /// # drop(reader);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RedlockRwLock {
        let client = Arc::clone(self.client());
        let key = Key::with_prefix(&client.prefix, key.as_ref()).map_err(LockError::InvalidKey);
        RedlockRwLock { client, key }
    }
}

/// A lock over the nodes that many readers share, or one writer has. Made by
/// [`Redlock::rw_lock`](crate::Redlock::rw_lock).
///
/// ```
/// # use redlock_tokio::Redlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// let catalogue = redlock.rw_lock("catalogue");
/// let one = catalogue.read().await?;
/// let other = catalogue.read().await?;
/// assert!(catalogue.try_write().await.unwrap_err().is_contended());
/// drop((one, other));
/// let alone = catalogue.write().await?;
/// assert!(catalogue.try_read().await.unwrap_err().is_contended());
/// # drop(alone);
/// # Ok(())
/// # }
/// ```
///
/// A node lets no reader in beside a writer, and no writer beside a reader, whatever the other nodes do. Two majorities share
/// a node, so that keeps readers and writers apart, as the algorithm keeps two holders of a lock apart.
///
/// A writer sets the same key as a plain [lock](crate::Redlock::lock). So a plain lock of this key, by any client, excludes
/// readers and writers, and they exclude it. Readers share the key: each node has a sorted set of them beside it, in which
/// each has an expiry of its own. A reader that has crashed keeps writers out for its own ttl and no longer.
///
/// # Order
///
/// A writer that waits keeps new readers out, and waits for those that are in. A reader that has waited for a writer does not
/// wait for the next one. So neither starves. A plain lock waits for readers but does not keep new ones out, so it may
/// starve. Each new reader makes the key look free to it for a moment, so it also asks the nodes often. Use a
/// [`write`](Self::write) where there are readers.
///
/// Requests of one process are served in the order in which they came, plain locks of the key too, except that a reader that may
/// not wait passes readers that do. So a plain lock that starves keeps them waiting until it gives up. Among processes writers stand in a line. Readers stand in none, so between them the order is a matter of chance.
///
/// # Readers of one process
///
/// Readers of one process share what one of them has acquired: a reader that comes within the time of a
/// [handover](crate::RedlockBuilder::handover_for) asks no node, if it has the same ttl and renewal, at least half of the ttl
/// is left, and nobody waits. The lock is released with the last of them. Its
/// [`max_hold`](crate::LockOptions::max_hold) counts from the last reader that came. So a reader that hangs keeps writers out
/// until then.
///
/// # Limits
///
/// A reader has no fencing token, and there is no upgrade: two readers that upgrade would wait for each other. See
/// [`LockGuard::downgrade`] for the other direction. Readers need sorted sets, `TIME` and scripts on the servers.
#[derive(Clone)]
pub struct RedlockRwLock {
    client: Arc<Client>,
    key: Result<Key, LockError>,
}

impl RedlockRwLock {
    /// Acquires the lock for a reader, and waits while a writer or another client has it. [`Lock`] has the options, and
    /// [`LockFuture`](crate::LockFuture) documents cancel safety.
    ///
    /// Costs one round trip to the majority, by a script. Costs none if a reader of this process has acquired the lock a
    /// short time ago.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::Contended`] if a writer or another client held the lock, or writers waited for it, until the
    /// end of the wait. Fails with [`LockError::InvalidOptions`] if the request asks for a fencing token. [`LockError`] lists
    /// the other errors.
    pub fn read(&self) -> Lock {
        let keys = self.key.clone().map(KeySet::to_read);
        Lock::new(Arc::clone(&self.client), keys)
    }

    /// Acquires the lock for a writer, alone, and waits while readers or others have it. New readers of all processes
    /// wait behind it. [`Lock`] has the options, and
    /// [`LockFuture`](crate::LockFuture) documents cost and cancel safety. The cost is that of a lock.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::Contended`] if readers or others held the lock until the end of the wait. [`LockError`] lists
    /// the other errors.
    pub fn write(&self) -> Lock {
        let keys = self.key.clone().map(KeySet::to_write);
        Lock::new(Arc::clone(&self.client), keys)
    }

    /// Makes one attempt to acquire the lock for a reader. Costs one round trip to the majority, or none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up. Keys that were set on nodes are released in the background.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub async fn try_read(&self) -> Result<LockGuard, LockError> {
        self.read().wait(Duration::ZERO).await
    }

    /// Makes one attempt to acquire the lock for a writer. Costs one round trip to the majority.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up. Keys that were set on nodes are released in the background.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub async fn try_write(&self) -> Result<LockGuard, LockError> {
        self.write().wait(Duration::ZERO).await
    }
}

impl fmt::Debug for RedlockRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockRwLock")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
