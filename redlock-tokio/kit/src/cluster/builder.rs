use std::time::Duration;

/// Collects the settings of a [`Cluster`](super::Cluster), and starts it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts the processes"]
pub struct ClusterBuilder {
    pub(super) shards: usize,
    pub(super) replicas: usize,
    pub(super) node_timeout: Duration,
    pub(super) full_coverage: bool,
    pub(super) password: Option<String>,
}

impl ClusterBuilder {
    /// Sets the number of shards, 3 by default. Each has about as many slots as the others. With fewer than
    /// three there is no failover without an order, since no majority of masters is left.
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = count;
        self
    }

    /// Sets the number of replicas in each shard, 1 by default.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Sets how long a node must be silent before another one finds it down, 2 s by default, in milliseconds
    /// (`cluster-node-timeout`). On a busy machine a healthy node may be silent for more than a second.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets whether all slots must have an owner before any command is carried out, as by default
    /// (`cluster-require-full-coverage`).
    pub fn full_coverage(mut self, is_required: bool) -> Self {
        self.full_coverage = is_required;
        self
    }

    /// Sets a password of all nodes. There is none by default.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            shards: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(2),
            full_coverage: true,
            password: None,
        }
    }
}
