use std::time::Duration;

/// Collects the settings of [`Sentinels`](super::Sentinels), and starts them.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts the processes"]
pub struct SentinelsBuilder {
    pub(super) replicas: usize,
    pub(super) down_after: Duration,
    pub(super) failover_timeout: Duration,
    pub(super) password: Option<String>,
    pub(super) sentinel_password: Option<String>,
}

impl SentinelsBuilder {
    /// Sets the number of replicas, 2 by default.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Sets how long a server must be silent before a sentinel finds it down, 2 s by default, in milliseconds.
    /// On a busy machine a healthy server may be silent for more than a second.
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// Sets how long a failover may take, 10 s by default, in milliseconds. The sentinels wait twice as long
    /// before they try a failed one again.
    pub fn failover_timeout(mut self, timeout: Duration) -> Self {
        self.failover_timeout = timeout;
        self
    }

    /// Sets a password of the servers. There is none by default.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Sets a password of the sentinels. There is none by default.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }
}

impl Default for SentinelsBuilder {
    fn default() -> Self {
        Self {
            replicas: 2,
            down_after: Duration::from_secs(2),
            failover_timeout: Duration::from_secs(10),
            password: None,
            sentinel_password: None,
        }
    }
}
