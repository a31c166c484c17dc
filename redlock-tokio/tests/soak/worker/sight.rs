//! What a worker last saw of a hold, and when the hold ended by that.
//!
//! The tests are in `tests/memory/judging`.

use std::time::Duration;

use redlock_tokio::LossReason;

/// What was last seen of a hold, in nanoseconds of the clock that decides on validity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// When the keys were last seen to be held.
    pub(crate) seen: u64,
    /// The end of their validity at that time.
    pub(crate) valid_until: u64,
}

impl Sight {
    /// Creates the sight of a hold that begins at this time.
    pub(crate) const fn new(from: u64) -> Self {
        Self {
            seen: from,
            valid_until: from,
        }
    }

    /// Notes that the hold is valid for this time. `now` must be read before `remaining`, so that the sum is not later
    /// than the end. Returns whether the keys are held.
    pub(crate) fn renew(&mut self, now: u64, remaining: Duration) -> bool {
        if remaining.is_zero() {
            return false;
        }
        self.seen = now;
        self.valid_until = now + remaining.as_nanos() as u64;
        true
    }

    /// Returns when a hold ended that is not valid any more at `now`. The result may be too early, and never is too
    /// late.
    ///
    /// Some losses come before the end of validity. Other clients can have the lock from then on, even if the holder
    /// looks much later. So the time between the last look and such a loss is not judged: the time between two looks,
    /// if the process runs.
    pub(crate) fn end(self, now: u64, reason: Option<LossReason>) -> u64 {
        match reason {
            None | Some(LossReason::Expired | LossReason::MaxHold) if self.valid_until <= now => {
                self.valid_until
            }
            _ => self.seen,
        }
    }
}
