//! How long a waiter for several keys is overtaken, and how its keys are reserved for it then.
//!
//! It needs all keys at once, so others overtake it while one of them is taken. Once it is *due*, and the
//! first in the queue of each of its keys, these keys are reserved: one that becomes free stays free until
//! all are. Two waiters that share a key are never both the first in its queue, so no key is reserved
//! twice, and a reservation waits for holders only.
//!
//! A holder may want a key that is reserved, and release its own no sooner than it has that. So a
//! reservation that keeps a free key from somebody lapses after a while: the waiters of that moment pass.
//! Then nobody reserves any of these keys for as long as this one lasted, so a key that nobody holds can be
//! had for half of the time; and the waiter is due only after it was overtaken or has waited once more. Its
//! next reservation lasts twice as long, up to a bound, so that it outlasts the holds.

use std::time::Duration;

use redlock_core::Timestamp;

use crate::key::KeySet;

/// When keys are reserved, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservationRule {
    /// A waiter that was overtaken this often is due.
    pub(super) max_overtakings: u32,
    /// So is one that has waited for so long.
    pub(super) max_wait: Duration,
    /// For how long the first reservation keeps a free key from others.
    pub(super) lasts: Duration,
    /// For how long any reservation does.
    pub(super) max_lasts: Duration,
    /// Reserves the last keys of a set for the waiter that came last. A test shows that this is wrong.
    #[cfg(test)]
    pub(super) reserves_out_of_order: bool,
}

impl ReservationRule {
    /// Enough that short holds of single keys fill the time in which a key of several is taken, and so few
    /// that several keys cost no more than a full queue of single ones does.
    pub(super) const DEFAULT: Self = Self {
        max_overtakings: 8,
        max_wait: Duration::from_millis(100),
        lasts: Duration::from_millis(50),
        max_lasts: Duration::from_millis(200),
        #[cfg(test)]
        reserves_out_of_order: false,
    };
}

/// A waiter for several keys. It waits in the queues of all of them.
#[derive(Debug)]
pub(super) struct MultiKeyWaiter<T> {
    pub(super) waiter: T,
    pub(super) keys: KeySet,
    since: Timestamp,
    overtakings: u32,
    lasts: Duration,
    lapses_at: Option<Timestamp>,
}

impl<T> MultiKeyWaiter<T> {
    pub(super) fn new(waiter: T, keys: KeySet, now: Timestamp, rule: &ReservationRule) -> Self {
        Self {
            waiter,
            keys,
            since: now,
            overtakings: 0,
            lasts: rule.lasts,
            lapses_at: None,
        }
    }

    pub(super) fn note_overtaking(&mut self) {
        self.overtakings = self.overtakings.saturating_add(1);
    }

    /// Returns whether its keys are to be reserved as soon as it is the first for each.
    pub(super) fn is_due(&self, now: Timestamp, rule: &ReservationRule) -> bool {
        self.overtakings >= rule.max_overtakings
            || now.saturating_duration_since(self.since) >= rule.max_wait
    }

    /// Notes that somebody waits for a free key because of this waiter. Returns when that is to end,
    /// unless it was returned before.
    pub(super) fn note_withheld(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.lapses_at.is_some() {
            return None;
        }
        self.lapses_at = Some(now.saturating_add(self.lasts));
        self.lapses_at
    }

    /// Ends the reservation if its time is over; the next one is to be earned like the first. Returns for how
    /// long it lasted.
    pub(super) fn lapse(&mut self, now: Timestamp, rule: &ReservationRule) -> Option<Duration> {
        self.lapses_at.take_if(|at| *at <= now)?;
        let lasted = self.lasts;
        self.since = now;
        self.overtakings = 0;
        self.lasts = lasted.saturating_mul(2).min(rule.max_lasts);
        Some(lasted)
    }

    /// Returns for how long a reservation has kept a key from somebody, if it does.
    pub(super) fn lasted(&self, now: Timestamp) -> Option<Duration> {
        let left = self.lapses_at?.saturating_duration_since(now);
        Some(self.lasts.saturating_sub(left))
    }
}
