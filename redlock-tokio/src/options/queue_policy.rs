use std::time::Duration;

use redlock_core::PollerShare;

/// On which terms somebody waits within the process, and hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePolicy {
    /// Whether a lock goes to the next without being released.
    pub(crate) hands_over: bool,
    /// For how long it may go from one to the next within this process.
    pub(crate) streak: Duration,
    pub(crate) max_handovers: u32,
    /// The part of the time in which a busy lock is left to clients that poll.
    pub(crate) poller_share: PollerShare,
    /// How many may wait for a key.
    pub(crate) max_waiters_per_key: usize,
    /// How long to wait at most.
    pub(crate) wait: Duration,
    /// Whether to refuse at once if the expected wait exceeds that.
    pub(crate) refuses_long_waits: bool,
}
