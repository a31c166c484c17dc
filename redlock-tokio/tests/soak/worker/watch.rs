use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{Hold, LossReason};

use super::{journal, store::Deadline};
use crate::{clock, line::Line, topology::MAX_TTL};

/// Observes a hold from its creation to its drop, and then reports it. The report is never longer than the
/// hold.
pub(super) struct Watch {
    key: usize,
    /// None for a task that does not lock.
    hold: Option<Hold>,
    from: u64,
    /// When the key was last seen to be held, and the end of its validity at that time.
    seen: u64,
    until: u64,
}

impl Watch {
    pub(super) fn new(key: usize, hold: Option<&Hold>) -> Self {
        let from = clock::now();
        let mut watch = Self {
            key,
            hold: hold.cloned(),
            from,
            seen: from,
            until: from,
        };
        watch.look();
        watch
    }

    /// Returns whether the key is held now, and notes the end of its validity.
    pub(super) fn look(&mut self) -> bool {
        // The clock is read first, so that the sum is not later than the end.
        let now = clock::now();
        let left = self.remaining();
        if left.is_zero() {
            return false;
        }
        self.seen = now;
        self.until = now + left.as_nanos() as u64;
        true
    }

    /// Returns the time from which a write is too late, unless it is too late now.
    pub(super) fn deadline(&mut self) -> Option<Deadline> {
        let deadline = Deadline::after(|| self.remaining());
        self.look().then_some(deadline)
    }

    /// Returns whether the keys were lost, which is noticed before the end of validity.
    fn lost_its_keys(&self) -> bool {
        let reason = self.hold.as_ref().and_then(|it| it.lost().now_or_never());
        reason == Some(LossReason::KeysLost)
    }

    fn remaining(&self) -> Duration {
        self.hold.as_ref().map_or(MAX_TTL, Hold::remaining)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let now = clock::now();
        let until = if self.look() {
            now
        } else if now < self.until || self.lost_its_keys() {
            // The lock was lost before the end of its validity, and not before the last look.
            self.seen
        } else {
            self.until
        };
        journal::tell(&Line::Hold {
            key: self.key,
            from: self.from,
            until,
        });
    }
}
