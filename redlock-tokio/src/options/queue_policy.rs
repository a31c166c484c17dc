use std::{fmt, time::Duration};

use redlock_core::Drift;

/// Settings of all locks of a [`Redlock`](crate::Redlock), because they are facts of its servers or its process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonSettings {
    pub(crate) drift: Drift,
    /// For how long a lock may be handed over within this process.
    pub(crate) handover_for: Duration,
    /// The part of the time for which a busy lock is left to clients that poll, in percent.
    pub(crate) poller_share: u8,
}

impl Default for CommonSettings {
    /// With a share of four percent and the time between two streaks, a busy lock is held for 95 % of the time.
    ///
    /// A change between processes takes 1 to 1.5 ms over loopback, in which nobody has the lock. Shorter streaks waste
    /// more time with such changes. In longer streaks, waiters wait longer for other processes.
    fn default() -> Self {
        Self {
            drift: Drift::default(),
            handover_for: Duration::from_millis(30),
            poller_share: 4,
        }
    }
}

/// How a request waits within the process, and how the lock is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePolicy {
    /// Whether a lock goes to the next waiter without a release.
    pub(crate) hands_over: bool,
    /// For how long it may be handed over within this process.
    pub(crate) streak: Duration,
    /// How long it took to get the lock from the nodes.
    pub(crate) attempt: Duration,
    /// Whether other processes were seen in the line of the key.
    pub(crate) others_wait: bool,
    /// In percent.
    pub(crate) poller_share: u8,
    /// How many requests may wait for a key.
    pub(crate) max_waiters_per_key: usize,
    /// How long to wait at most.
    pub(crate) wait: Duration,
}

/// A limit on the requests that wait in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaiterLimit {
    /// [`max_waiters_per_key`](crate::LockOptions::max_waiters_per_key).
    PerKey,
    /// `max_waiters_total` of the [`Redlock`](crate::RedlockBuilder::max_waiters_total), or of a layer.
    Total,
}

impl fmt::Display for WaiterLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerKey => "for the key (max_waiters_per_key)",
            Self::Total => "for any key (max_waiters_total)",
        })
    }
}
