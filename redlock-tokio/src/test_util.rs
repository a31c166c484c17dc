//! Nodes for tests.

use std::time::Duration;

use crate::{BuildError, Clock, LockError, LockGuard, MemoryNode, Redlock, RedlockBuilder};

/// Three nodes in memory, with methods that simulate contention, loss and outages.
///
/// Keys expire by tokio's clock. With a paused clock (`#[tokio::test(start_paused = true)]`) a test takes no
/// time. Clones share their keys.
///
/// ```
/// use std::time::Duration;
/// use redlock_tokio::{LockError, test_util::TestNodes};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = TestNodes::new();
/// let redlock = nodes.connect().await?; // for the code under test
///
/// let other = nodes.contend("order:42").await?; // as another process would
/// let error = redlock.lock("order:42").wait(Duration::ZERO).await.unwrap_err();
/// assert!(matches!(error, LockError::Contended(_)));
/// other.release().await;
///
/// nodes.lose_next("order:42"); // the next holder loses it
/// let guard = redlock.lock("order:42").await?;
/// guard.hold().lost().await;
/// drop(guard);
///
/// nodes.go_down();
/// let error = redlock.lock("order:42").wait(Duration::ZERO).await.unwrap_err();
/// assert!(matches!(error, LockError::NoQuorum(_)));
/// nodes.come_up();
/// assert!(redlock.lock("order:42").await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestNodes {
    nodes: Vec<MemoryNode>,
}

impl TestNodes {
    /// Creates three nodes without keys.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: (0..3).map(|_| MemoryNode::new()).collect(),
        }
    }

    /// Connects to the nodes with default options. Each call simulates another process.
    ///
    /// # Errors
    ///
    /// Fails outside of a tokio runtime.
    pub async fn connect(&self) -> Result<Redlock, BuildError> {
        self.builder().build().await
    }

    /// Returns a builder for a lock over these nodes.
    pub fn builder(&self) -> RedlockBuilder {
        Redlock::builder()
            .custom_nodes(self.nodes.clone())
            .clock(Clock::tokio())
    }

    /// Acquires a lock as another process would, and holds it while the guard lives. Pass the key with its
    /// prefix, if the code under test has one.
    ///
    /// # Errors
    ///
    /// As for [`Redlock::lock`], if the lock is held already or the nodes are down.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn contend(&self, key: impl AsRef<[u8]>) -> Result<LockGuard, LockError> {
        let another = self.another().await;
        another.lock(key).max_hold(Duration::MAX).await
    }

    /// Acquires a [lock of readers and writers](Redlock::rw_lock) as a reader of another process would. Holds it while the
    /// guard lives, and keeps writers out. Keep writers and readers out with [`contend`](Self::contend).
    ///
    /// ```
    /// # use redlock_tokio::test_util::TestNodes;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = TestNodes::new();
    /// let catalogue = nodes.connect().await?.rw_lock("catalogue");
    /// let reader = nodes.contend_as_reader("catalogue").await?;
    /// assert!(catalogue.try_read().await.is_ok());
    /// assert!(catalogue.try_write().await.unwrap_err().is_contended());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`contend`](Self::contend).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn contend_as_reader(&self, key: impl AsRef<[u8]>) -> Result<LockGuard, LockError> {
        let another = self.another().await.rw_lock(key);
        another.read().max_hold(Duration::MAX).await
    }

    /// Acquires all permits of a [semaphore](Redlock::semaphore) as another process would, and holds them while the guards
    /// live.
    ///
    /// ```
    /// # use redlock_tokio::test_util::TestNodes;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = TestNodes::new();
    /// let exports = nodes.connect().await?.semaphore("exports", 2);
    /// let mut permits = nodes.contend_for_permits("exports", 2).await?;
    /// assert!(exports.try_acquire().await.unwrap_err().is_contended());
    /// permits.pop(); // one comes back
    /// assert!(exports.acquire().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Redlock::semaphore`], if a permit is taken already or the nodes are down. None is held then.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn contend_for_permits(
        &self,
        key: impl AsRef<[u8]>,
        permits: usize,
    ) -> Result<Vec<LockGuard>, LockError> {
        let semaphore = self.another().await.semaphore(key, permits);
        let mut held = Vec::new();
        // A wrong number of permits is an error of the first request.
        for _ in 0..permits.max(1) {
            held.push(semaphore.acquire().max_hold(Duration::MAX).await?);
        }
        Ok(held)
    }

    async fn another(&self) -> Redlock {
        let another = self.connect().await;
        another.expect("three nodes in memory and the defaults make a lock")
    }

    /// Deletes the keys of a held lock. The holder learns of the loss at once if the lock was extended before, and otherwise
    /// with the first extension: after a third of the ttl, or when the holder asks for one.
    ///
    /// # Panics
    ///
    /// If no client holds the lock. Use [`lose_next`](Self::lose_next) before a lock is acquired.
    #[track_caller]
    pub fn lose_held(&self, key: impl AsRef<[u8]>) {
        assert!(
            self.is_locked(&key),
            "no client holds this lock: call lose_next before the lock is acquired"
        );
        self.nodes.iter().for_each(|node| _ = node.remove(&key));
    }

    /// Makes the next holder lose the lock as soon as it is acquired. The holder learns of the loss a millisecond later,
    /// unless its lock is [not renewed](crate::LockOptions::no_renewal).
    ///
    /// The present holder keeps the lock. So call this method if a guard was dropped a moment ago and its
    /// release may still be on its way.
    pub fn lose_next(&self, key: impl AsRef<[u8]>) {
        self.nodes.iter().for_each(|node| node.lose_next(&key));
    }

    /// Takes all nodes down: no lock is available, and held locks are lost in time.
    pub fn go_down(&self) {
        self.nodes.iter().for_each(|node| node.set_down(true));
    }

    /// Brings all nodes up again, with their keys. Clients notice at their next attempt to connect. A
    /// [`lock`](Redlock::lock) waits for that, but a `try_lock` may fail before.
    pub fn come_up(&self) {
        self.nodes.iter().for_each(|node| node.set_down(false));
    }

    /// Returns whether somebody holds the lock.
    #[must_use]
    pub fn is_locked(&self, key: impl AsRef<[u8]>) -> bool {
        let holding = self.nodes.iter().filter(|node| node.contains(&key));
        2 * holding.count() > self.nodes.len()
    }

    /// Returns the nodes, for faults of a single node.
    #[must_use]
    pub fn nodes(&self) -> &[MemoryNode] {
        &self.nodes
    }
}

impl Default for TestNodes {
    fn default() -> Self {
        Self::new()
    }
}
