//! When the keys of a waiter for several keys are reserved for it, and for how long.
//!
//! Such a waiter needs all its keys at once, so other waiters overtake it while one of its keys is taken. Once it
//! is *due*, and the first in the queue of each of its keys, these keys are reserved: a key that becomes free stays
//! free until all of them are free. Two waiters that share a key are never both the first in its queue. So no key is
//! reserved twice, and a reservation waits for holders only.
//!
//! A holder may want a reserved key before it releases its own. So a reservation that keeps a free key from another
//! waiter expires after a while, and lets the waiters of that moment pass. Then the keys are *open*: for as long as
//! the reservation lasted, no waiter may reserve any of them. So a key that nobody holds is available for half of the
//! time. The waiter is due again only after it was overtaken as often, or has waited as long, as before. Its next
//! reservation lasts twice as long, up to a bound, so that it outlasts the holds.

use std::time::Duration;

use redlock_core::Timestamp;

use crate::key::KeySet;

/// When keys are reserved, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservationRule {
    /// A waiter is due once it was overtaken this often.
    pub(super) max_overtakings: u32,
    /// A waiter is due once it has waited this long.
    pub(super) max_wait: Duration,
    /// How long the first reservation of a waiter keeps a free key from others.
    pub(super) duration: Duration,
    /// How long any reservation keeps a free key from others.
    pub(super) max_duration: Duration,
}

impl ReservationRule {
    /// Waiters overtake often enough that short holds of single keys fill the time while one of several keys is
    /// taken. And they overtake so seldom that a lock of several keys waits no longer than in a full queue of
    /// waiters for single keys.
    pub(super) const DEFAULT: Self = Self {
        max_overtakings: 8,
        max_wait: Duration::from_millis(100),
        duration: Duration::from_millis(50),
        max_duration: Duration::from_millis(200),
    };
}

/// A waiter for several keys. It waits in the queues of all of them.
#[derive(Debug)]
pub(super) struct MultiKeyWaiter<T> {
    pub(super) waiter: T,
    pub(super) keys: KeySet,
    since: Timestamp,
    overtakings: u32,
    duration: Duration,
    expires_at: Option<Timestamp>,
}

impl<T> MultiKeyWaiter<T> {
    pub(super) fn new(waiter: T, keys: KeySet, now: Timestamp, rule: &ReservationRule) -> Self {
        Self {
            waiter,
            keys,
            since: now,
            overtakings: 0,
            duration: rule.duration,
            expires_at: None,
        }
    }

    pub(super) fn note_overtaking(&mut self) {
        self.overtakings = self.overtakings.saturating_add(1);
    }

    /// Returns whether its keys are reserved as soon as it is the first waiter for each of them.
    pub(super) fn is_due(&self, now: Timestamp, rule: &ReservationRule) -> bool {
        self.overtakings >= rule.max_overtakings
            || now.saturating_duration_since(self.since) >= rule.max_wait
    }

    /// Notes that another waiter is kept from a free key because of this one. Returns when the reservation expires, unless
    /// it was returned before.
    pub(super) fn note_withheld(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.expires_at.is_some() {
            return None;
        }
        self.expires_at = Some(now.saturating_add(self.duration));
        self.expires_at
    }

    /// Ends the reservation if its time is over. Returns how long it lasted. The waiter must become due again before the
    /// next one.
    pub(super) fn expire(&mut self, now: Timestamp, rule: &ReservationRule) -> Option<Duration> {
        self.expires_at.take_if(|at| *at <= now)?;
        let lasted = self.duration;
        self.since = now;
        self.overtakings = 0;
        self.duration = lasted.saturating_mul(2).min(rule.max_duration);
        Some(lasted)
    }

    /// Returns how long the reservation has kept a free key from another waiter so far, if it does.
    pub(super) fn elapsed(&self, now: Timestamp) -> Option<Duration> {
        let left = self.expires_at?.saturating_duration_since(now);
        Some(self.duration.saturating_sub(left))
    }
}
