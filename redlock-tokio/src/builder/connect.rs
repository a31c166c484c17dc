use crate::{BuildError, ClusterNodes, Redlock, RedlockBuilder};

/// Ways to make a [`Redlock`].
impl Redlock {
    /// Connects to the masters at these URLs, with default settings.
    ///
    /// Succeeds even if all of them are down: locks fail with [`LockError::NoQuorum`](crate::LockError::NoQuorum)
    /// until a majority is up. [`ready`](Self::ready) waits for a majority.
    ///
    /// The `Redlock` belongs to the runtime that calls this: [`RedlockBuilder::build`] says what follows.
    ///
    /// # Errors
    ///
    /// [`RedlockBuilder::build`] lists the errors, and how long it takes to connect.
    pub async fn connect<I>(urls: I) -> Result<Self, BuildError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::builder().nodes(urls).build().await
    }

    /// Connects to a cluster with at least three shards, of which these nodes are some, with default settings. Three
    /// hash slots vote. [`ClusterNodes`] says how a lock over a cluster works, and has options.
    ///
    /// Succeeds even if all of them are down, as [`connect`](Self::connect) does. The very first client of a cluster
    /// waits for the longest ttl and about three seconds before its locks can succeed: [`ready`](Self::ready) waits
    /// for that. Name nodes on several machines, since one of those named must answer.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::cluster(["redis://a:7000", "redis://b:7000", "redis://c:7000"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError::Cluster`] if the cluster cannot be used. [`RedlockBuilder::build`] lists the other errors.
    pub async fn cluster<I>(seeds: I) -> Result<Self, BuildError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::builder()
            .cluster(ClusterNodes::new(seeds))
            .build()
            .await
    }

    /// Creates a lock service over five nodes in the memory of this process: for first steps, for tests, and for
    /// services that run as a single process.
    ///
    /// It belongs to the runtime that calls this: [`RedlockBuilder::build`] says what follows. Its clock is tokio's clock, so on
    /// a paused runtime hours pass in a moment:
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
    /// Fails outside a tokio runtime.
    pub async fn embedded() -> Result<Self, BuildError> {
        Self::builder().embedded().build().await
    }

    /// Returns a builder, which sets nodes, prefix and default options.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }
}
