use std::time::Duration;

use super::{LockOptions, RetryDelay};

/// How a request waits for a lock.
impl LockOptions {
    /// Sets the total time to wait for the lock, for holders in this process and in others.
    ///
    /// Zero means one attempt, or none if a task of this process already holds the lock or waits for it.
    /// [`Duration::MAX`] means no limit. The first attempt always runs to its end, so silent nodes can delay the error
    /// by their [timeout](crate::RedlockBuilder::node_timeout). Later attempts end when this time is over. A request
    /// that waits behind other processes from the start makes its first attempt at the latest when this time is over.
    ///
    /// ```
    /// # use redlock_tokio::{LockError, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let second = redlock.lock("order:42").wait(Duration::from_secs(2));
    /// assert!(matches!(second.await, Err(LockError::Contended(_)))); // after 2 s
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "timeout")]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets an upper bound of [`wait`](Self::wait), for a caller that gives up after this time. The shortest of
    /// several bounds counts.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// # let guard = redlock.lock("order:42").await?;
    /// let bounded = LockOptions::new().wait_at_most(Duration::from_secs(1));
    /// let lock = redlock.lock("order:42").wait(Duration::MAX).options(bounded);
    /// assert!(lock.await.is_err()); // after 1 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_at_most(mut self, bound: Duration) -> Self {
        let bound = self.wait_at_most.map_or(bound, |limit| limit.min(bound));
        self.wait_at_most = Some(bound);
        self
    }

    /// Sets the number of attempts within the waiting time, as clients with a retry count do. Zero counts as one.
    ///
    /// An attempt is a look at the nodes: a request to set the key, or the check, after each
    /// [`retry_delay`](Self::retry_delay), of a key that another client has. With 11 attempts and a delay of 20 to
    /// 30 ms, a request for a taken lock ends after 0.2 to 0.3 s, and
    /// [`Attempts::count`](crate::Attempts::count) is 11. Time in the queue of this process is not counted.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = [MemoryNode::new()];
    /// let one = Redlock::builder().custom_nodes(nodes.clone()).build().await?;
    /// let other = Redlock::builder().custom_nodes(nodes).build().await?;
    /// let guard = one.lock("order:42").await?;
    /// let once = LockOptions::new().max_attempts(1);
    /// let error = other.lock("order:42").options(once).await.unwrap_err();
    /// assert!(error.is_contended()); // at once, not after 5 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets the range of the random delay between attempts, for nodes that send no notifications, and for requests with
    /// [`max_attempts`](Self::max_attempts). The shortest delay must not be zero.
    ///
    /// Servers that speak RESP3 and [`MemoryNode`](crate::MemoryNode)s send a notification when a lock is free, and the
    /// next attempt begins at once. There a waiter checks whether it has missed a notification every five to ten seconds, and
    /// more often shortly before its time is over. With `max_attempts` it keeps to the delay, and stands in no line of
    /// processes.
    pub fn retry_delay(mut self, shortest: Duration, longest: Duration) -> Self {
        self.retry_delay = Some(RetryDelay { shortest, longest });
        self
    }

    /// Sets how many requests may wait for a key in this process. Further requests fail at once with
    /// [`LockError::QueueFull`](crate::LockError::QueueFull). A request for several keys waits for each of them.
    ///
    /// [`max_waiters_total`](crate::RedlockBuilder::max_waiters_total) limits the requests for all keys together.
    ///
    /// ```
    /// # use redlock_tokio::{LockError, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let second = redlock.lock("order:42").max_waiters_per_key(0);
    /// assert!(matches!(second.await, Err(LockError::QueueFull { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiters_per_key(mut self, waiters: usize) -> Self {
        self.max_waiters_per_key = Some(waiters);
        self
    }

    /// Fails within a moment with [`LockError::NoQuorum`](crate::LockError::NoQuorum) or
    /// [`LockError::Quarantined`](crate::LockError::Quarantined) if no majority of the nodes can vote within
    /// [`wait`](Self::wait). Otherwise each request waits that long before it fails, and in an outage they pile up.
    ///
    /// A node is known to have no vote
    ///
    /// - if an attempt to connect has failed since the request began, or takes longer than the
    ///   [`node_timeout`](crate::RedlockBuilder::node_timeout);
    /// - if the node refused the last request to set a key, for a second;
    /// - until its quarantine ends.
    ///
    /// So a request in an outage waits for an attempt to connect, which takes up to twice the `node_timeout`: 0.1 s by
    /// default. All requests share these attempts. A request that waits already, for the nodes or behind another
    /// request, ends as soon as this is known.
    ///
    /// A node that does not answer a request may be back in a moment: only after a second is there an attempt to
    /// connect again. So the first requests of an outage in which nodes hang wait for about a second. A request may also
    /// fail in the first second after an outage, if the node refused a lock just before, or the attempt to connect had
    /// begun before and hangs (for up to the [`connect_timeout`](crate::RedlockBuilder::connect_timeout)).
    ///
    /// The option is off by default, because a job would rather wait. The layer of `redlock-axum` turns it on, because
    /// a client over HTTP would rather know. A layer with `fail_open` ignores it.
    ///
    /// ```
    /// # use redlock_tokio::{LockOptions, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = MemoryNode::new();
    /// node.set_down(true);
    /// let redlock = Redlock::builder().custom_nodes([node]).build().await?;
    /// let options = LockOptions::new().fail_fast(true);
    /// let error = redlock.lock("order:42").options(options).await.unwrap_err();
    /// assert_eq!(error.attempts().unwrap().count, 0); // it did not even try
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.fail_fast = Some(fail_fast.into());
        self
    }
}
