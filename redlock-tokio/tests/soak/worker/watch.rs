use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{Hold, LossReason};

use super::{journal, store::Deadline};
use crate::{bed::MAX_TTL, line::Line};

/// Somebody who holds a key, or thinks so, from when this is made until it is dropped. Then it is
/// written down, never longer than it was.
pub(super) struct Watch {
    key: usize,
    /// None for those who only pretend.
    hold: Option<Hold>,
    from: u64,
    /// When it was last seen to be held, and until when it would have stayed so.
    seen: u64,
    until: u64,
}

impl Watch {
    pub(super) fn new(key: usize, hold: Option<&Hold>) -> Self {
        let from = journal::now();
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

    /// Returns whether the key is held now, and notes until when.
    pub(super) fn look(&mut self) -> bool {
        // Before it is asked how long, so that the sum is not later than it is.
        let now = journal::now();
        let left = self.remaining();
        if left.is_zero() {
            return false;
        }
        self.seen = now;
        self.until = now + left.as_nanos() as u64;
        true
    }

    /// Returns when a write comes too late, if it does not now.
    pub(super) fn deadline(&mut self) -> Option<Deadline> {
        let deadline = Deadline::after(|| self.remaining());
        self.look().then_some(deadline)
    }

    /// Returns whether it was told of the loss of its keys, which is before the end of validity.
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
        let now = journal::now();
        let until = if self.look() {
            now
        } else if now < self.until || self.lost_its_keys() {
            // Lost earlier than its validity had said; since then, or later.
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
