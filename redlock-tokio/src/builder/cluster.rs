use super::nodes::Given;
use crate::{BuildError, ClusterNodes, Redlock, RedlockBuilder};

/// Locks over a cluster.
impl RedlockBuilder {
    /// Adds the voters of a cluster: three hash slots, unless the description says otherwise. Each votes as a node.
    ///
    /// A description that cannot be used is reported by [`build`](Self::build).
    ///
    /// ```no_run
    /// # use redlock_tokio::{ClusterNodes, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let seeds = ["rediss://:secret@n1.internal", "rediss://:secret@n2.internal"];
    /// let cluster = ClusterNodes::new(seeds).voters(1);
    /// let redlock = Redlock::builder().cluster(cluster).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster(mut self, cluster: ClusterNodes) -> Self {
        self.given.push(Given::Cluster(cluster));
        self
    }
}

/// Ways to make a [`Redlock`].
impl Redlock {
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
}
