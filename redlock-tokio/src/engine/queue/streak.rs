use redlock_core::Timestamp;

use crate::options::QueuePolicy;

/// Holds that follow each other within this process while other processes wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    since: Timestamp,
}

impl Streak {
    /// Starts with a hold that began at `since`.
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since }
    }

    pub(super) fn may_go_on(&self, now: Timestamp, policy: &QueuePolicy) -> bool {
        now.saturating_duration_since(self.since) < policy.streak
    }
}
