//! The wait between two attempts.

use super::{key_watch::KeyWatch, retry_state::RetryState};
use crate::{AcquireFailure, Timestamp};

/// A lease that waits until it may try again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    /// When to try or to probe again if nothing happens before.
    pub(super) until: Timestamp,
    /// No attempt starts before this, whatever happens.
    pub(super) not_before: Timestamp,
    pub(super) retry: RetryState,
    /// What is known about the key, if it is watched.
    pub(super) key_watch: Option<KeyWatch>,
}

/// What a lease that waits does next.
pub(super) enum Next {
    /// It goes on to wait.
    Wait,
    GiveUp(AcquireFailure),
    /// A probe that is due, or that confirms that the key is free.
    Probe,
    Confirm,
    Attempt,
}

impl Backoff {
    /// Creates a wait that nothing cuts short.
    pub(super) const fn until(until: Timestamp, retry: RetryState) -> Self {
        Self {
            until,
            not_before: until,
            retry,
            key_watch: None,
        }
    }

    /// Returns when something is to be done if nothing happens before.
    pub(super) fn timeout(&self) -> Timestamp {
        let times = [Some(self.until), self.free_at(), self.retry.gathers_at()];
        times.into_iter().flatten().min().unwrap_or(self.until)
    }

    /// Returns when an attempt may start because the key is free, as far as that is known.
    fn free_at(&self) -> Option<Timestamp> {
        let free_at = self.key_watch.as_ref()?.free_at()?;
        Some(free_at.max(self.not_before))
    }

    /// Returns what a lease that has made so many attempts does now. Every lease makes an attempt, even at its
    /// deadline, unless another client has the key.
    pub(super) fn next(&mut self, now: Timestamp, attempts: u32) -> Next {
        if let Some(key_watch) = &mut self.key_watch
            && key_watch.is_taken(now)
        {
            self.retry.handle_taken();
            if key_watch.take_was_free() {
                self.retry.handle_missed();
                key_watch.handle_missed(self.retry.missed);
            }
        }
        let is_free = self.free_at().is_some_and(|at| at <= now);
        let gathers = self.retry.gathers_at().is_some_and(|at| at <= now);
        if now < self.until && !is_free && !gathers {
            return Next::Wait;
        }
        if now >= self.retry.deadline {
            // Judged by the deadline, however late the timer comes.
            let deadline = self.retry.deadline;
            let is_taken = self
                .key_watch
                .as_ref()
                .is_some_and(|it| it.is_taken(deadline));
            return if attempts == 0 && !is_taken {
                Next::Attempt
            } else {
                // The timer came too late for another attempt.
                Next::GiveUp(self.failure())
            };
        }
        let Some(key_watch) = self.key_watch.as_mut().filter(|_| !gathers) else {
            return Next::Attempt;
        };
        if key_watch.is_taken(now) {
            Next::Probe
        } else if now < self.until && key_watch.take_confirmation() {
            Next::Confirm
        } else {
            Next::Attempt
        }
    }

    pub(super) fn failure(&self) -> AcquireFailure {
        self.retry.failure.unwrap_or(AcquireFailure::NoQuorum)
    }
}
