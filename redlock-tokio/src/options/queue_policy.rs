use std::time::Duration;

use redlock_core::PollerShare;

/// How a request waits within the process, and how the lock is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePolicy {
    /// Whether a lock goes to the next waiter without a release.
    pub(crate) hands_over: bool,
    /// For how long it may be handed over within this process.
    pub(crate) streak: Duration,
    pub(crate) max_handovers: u32,
    /// The part of the time for which a busy lock is left to clients that poll.
    pub(crate) poller_share: PollerShare,
    /// How many requests may wait for a key.
    pub(crate) max_waiters_per_key: usize,
    /// How long to wait at most.
    pub(crate) wait: Duration,
    /// Whether to fail at once if the expected wait exceeds that.
    pub(crate) refuses_long_waits: bool,
}
