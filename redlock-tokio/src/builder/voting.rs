use std::time::Duration;

use crate::{Durability, RedlockBuilder};

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

    /// Sets what nodes still know of locks after a restart or a failover. [`Durability::Volatile`] by default, which
    /// lets a node wait before it votes again.
    ///
    /// This applies to all nodes. Set the same value in all processes that use them.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use redlock_tokio::Durability;
    ///
    /// let builder = Redlock::builder().nodes(["redis://a", "redis://b", "redis://c"]);
    /// let redlock = builder.durability(Durability::FsyncAlways).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
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
    /// With a [`durability`](Self::durability) other than [`Durability::Volatile`], the uptime and `master_replid2` may
    /// be missing in any case.
    ///
    /// [`NodeStatus::unmet`](crate::NodeStatus::unmet) shows the checks that a node leaves unmet, and one warning
    /// in the log says what this means. If only the right to `INFO` is missing, it is better to grant this right.
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
