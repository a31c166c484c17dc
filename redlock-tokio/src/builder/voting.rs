use std::time::Duration;

use crate::{RedlockBuilder, engine::lane::vetting::RestartRule};

/// When a node may vote.
impl RedlockBuilder {
    /// Sets the longest ttl that a lock over these nodes may have, in *any* process. By default this is the default
    /// [ttl](Self::ttl) of this builder. At most 100 years.
    ///
    /// A node that started less than this time ago may have forgotten a lock that is still held. The node has no
    /// vote until that time is over. Set the same value in all processes that use these nodes.
    ///
    /// ```
    /// # use redlock_tokio::{LockError, MemoryNode, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = [MemoryNode::new()];
    /// let minute = Duration::from_secs(60);
    /// let builder = Redlock::builder().custom_nodes(nodes).max_ttl(minute);
    /// let redlock = builder.build().await?;
    ///
    /// let guard = redlock.lock("order:42").ttl(minute).await?;
    /// let error = redlock.lock("order:43").ttl(2 * minute).await.unwrap_err();
    /// assert!(matches!(error, LockError::InvalidOptions(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Lets restarted nodes vote at once, because each node writes to disk before it answers
    /// (`appendonly yes` and `appendfsync always`), and so forgets nothing.
    ///
    /// Give durable nodes no replicas. A replica that was promoted behind the same address may lack keys. This client
    /// detects that only if the server was seen as a replica, or has been up for longer than the connection was down.
    /// Then the node must wait. A replica that restarts during its promotion is not detected.
    ///
    /// This method changes nothing for Sentinel groups and clusters, whose failovers lose keys that are on the disk of
    /// the old master: see [`failovers_lose_nothing`](Self::failovers_lose_nothing).
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://a", "redis://b", "redis://c"];
    /// let builder = Redlock::builder().nodes(nodes).nodes_are_durable();
    /// let redlock = builder.build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes_are_durable(mut self) -> Self {
        self.restarts = RestartRule::Durable;
        self
    }

    /// Lets a server vote as soon as it is confirmed as the master, because the failovers of this service lose nothing,
    /// by the word of its maker. Amazon `MemoryDB` is such a service: a key that it has confirmed is on every server
    /// that may become the master.
    ///
    /// Without this method a failover is an outage of its voter for about the longest ttl, and the locks that are
    /// held need the other voters. Redis and Valkey lose keys in failovers, also with an append-only file, with `WAIT`
    /// and with `min-replicas-to-write`. [`nodes_are_durable`](Self::nodes_are_durable) is about restarts of one
    /// server.
    ///
    /// ```no_run
    /// # use redlock_tokio::{ClusterNodes, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = ClusterNodes::new(["rediss://ann:secret@memorydb.internal"]).voters(1);
    /// let builder = Redlock::builder().cluster(cluster).failovers_lose_nothing();
    /// let redlock = builder.build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn failovers_lose_nothing(mut self) -> Self {
        self.restarts = RestartRule::Lossless;
        self
    }

    /// Lets restarted nodes vote at once, although they may have forgotten locks that are still held.
    ///
    /// *For tests only*: the servers of a test have never held a lock when they start. A server that sentinels or the
    /// nodes of a cluster name as the master votes as soon as a majority of them has confirmed it.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://127.0.0.1:7001"]; // started for this test
    /// let builder = Redlock::builder().nodes(nodes).trust_fresh_nodes();
    /// let redlock = builder.build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn trust_fresh_nodes(mut self) -> Self {
        self.restarts = RestartRule::Trusted;
        self
    }

    /// Lets nodes vote that refuse `INFO` to this client, or whose `INFO` lacks a field that a
    /// [check](crate::Check) needs. Without this method they are refused, and the error names the fields.
    ///
    /// The fields that a node does report still count. Each missing field costs one check:
    ///
    /// | `INFO` lacks | without this method | with this method |
    /// |---|---|---|
    /// | `run_id` | nothing is lost: `master_replid` shows which server it is | the same |
    /// | `run_id` and `master_replid` | refused | one server under two addresses votes twice; another server in the node's place is noticed only by its uptime |
    /// | `role` | refused | a replica votes, if it accepts writes |
    /// | `uptime_in_seconds` | waits for `max_ttl` when this client first sees the server; refused if `run_id` is missing too | a server that has just restarted votes at once, although it may have forgotten locks |
    /// | `master_replid2` | refused | a promoted replica votes at once when this client first sees it, although it may lack locks |
    /// | all, because `INFO` is refused | refused | all of the above |
    ///
    /// With [`nodes_are_durable`](Self::nodes_are_durable) or [`trust_fresh_nodes`](Self::trust_fresh_nodes), the
    /// uptime and `master_replid2` may be missing in any case.
    ///
    /// [`NodeStatus::unmet`](crate::NodeStatus::unmet) shows the checks that a node leaves unmet, and one warning
    /// in the log says what this means. If only the right to `INFO` is missing, it is better to grant this right.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://a", "redis://b", "redis://c"];
    /// let builder = Redlock::builder().nodes(nodes).allow_unvetted_nodes();
    /// let redlock = builder.build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_unvetted_nodes(mut self) -> Self {
        self.allow_unvetted = true;
        self
    }

    /// Sets for how long a server may vote after a majority of its sentinels, or of the nodes of its cluster, has
    /// confirmed that it is the master. 3 s by default, at most an hour. Has no effect on nodes with an address of
    /// their own.
    ///
    /// Each of them is asked three times in this time, and at least once a second. Set the same value in all processes
    /// that use these nodes. After a failover the new master votes when [`max_ttl`](Self::max_ttl) and this window are
    /// over.
    ///
    /// The window may be at most a third of the ttl of any lock. A shorter ttl fails with
    /// [`OptionsError::ShorterThanThreeWindows`](crate::OptionsError::ShorterThanThreeWindows).
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().nodes(["redis://a", "redis://b", "redis://c"]);
    /// let builder = builder.ttl(Duration::from_secs(3));
    /// let redlock = builder.confirmation_window(Duration::from_secs(1)).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn confirmation_window(mut self, window: Duration) -> Self {
        self.confirmation_window = window;
        self
    }
}
