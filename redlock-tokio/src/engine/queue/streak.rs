use redlock_core::Timestamp;

use crate::options::QueuePolicy;

/// Holds that follow each other within this process while the rest of the world waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    since: Timestamp,
    handovers: u32,
}

impl Streak {
    /// Begins with the hold since then.
    pub(super) fn new(since: Timestamp) -> Self {
        Self {
            since,
            handovers: 0,
        }
    }

    pub(super) fn may_go_on(&self, now: Timestamp, policy: &QueuePolicy) -> bool {
        now.saturating_duration_since(self.since) < policy.streak
    }

    pub(super) fn may_hand_over(&self, now: Timestamp, policy: &QueuePolicy) -> bool {
        self.may_go_on(now, policy) && self.handovers < policy.max_handovers
    }

    pub(super) fn note_handover(&mut self) {
        self.handovers += 1;
    }
}
