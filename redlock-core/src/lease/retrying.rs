//! Between two attempts: what is remembered, how long the lease waits, and what it does then.

use core::time::Duration;

use super::{Lease, in_line::Order, key_watch::KeyWatch, transferring::Adoption};
use crate::{AcquireFailure, Timestamp};

/// The things that a lease remembers from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RetryState {
    /// No attempt but the first starts at this time or later.
    pub(super) deadline: Timestamp,
    /// How the last attempt failed.
    pub(super) failure: Option<AcquireFailure>,
    /// How many attempts at a watched key have failed since another client was seen to have it.
    pub(super) collisions: u32,
    /// How many scheduled probes there were because the key was taken.
    pub(super) probes: u32,
    /// What a reader has seen of writers. `None` if the lease is none.
    pub(super) writer: Option<Writer>,
    /// The deadline has passed, and only one look at the slots of a semaphore is left, and one attempt.
    pub(super) looks_once: bool,
    /// Whether the lease waits in a line.
    pub(super) order: Order,
    /// The lock that its only attempt adopts, if it does not ask for a free one.
    pub(super) adopts: Option<Adoption>,
}

/// What a reader that waits has seen of writers.
///
/// A writer that waits marks the key, and so keeps new readers out. Without a limit, busy writers would keep a reader
/// out for ever. So a reader waits for one writer that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Unseen,
    Came,
    Went,
}

impl RetryState {
    pub(super) const fn new(deadline: Timestamp) -> Self {
        Self {
            deadline,
            failure: None,
            collisions: 0,
            probes: 0,
            writer: None,
            looks_once: false,
            order: Order::Free,
            adopts: None,
        }
    }

    pub(super) const fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Returns whether a reader has waited for a writer, and need not wait for the next one.
    pub(super) fn insists(&self) -> bool {
        self.writer == Some(Writer::Went)
    }

    /// Returns how often the lock was tried, by attempts or scheduled probes.
    pub(super) fn tries(&self, attempts: u32) -> u32 {
        attempts.saturating_add(self.probes)
    }

    /// Counts an attempt that failed because of another client.
    pub(super) fn handle_defeat(&mut self) {
        self.failure = Some(AcquireFailure::Contended);
        self.collisions = self.collisions.saturating_add(1);
    }

    /// Notes that another client has the key, so the collisions before are settled. If they still counted, a
    /// client would back off for longer the longer it waits, and clients that come later would overtake it.
    pub(super) fn handle_taken(&mut self) {
        self.collisions = 0;
    }
}

/// A lease that waits until it may try again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    /// When to try or to probe again if nothing happens before.
    pub(super) until: Timestamp,
    /// No attempt starts before this, whatever happens.
    pub(super) not_before: Timestamp,
    pub(super) retry: RetryState,
    /// The knowledge about the key, if it is watched.
    pub(super) key_watch: Option<KeyWatch>,
    /// How long to leave the key to others once it is free.
    pub(super) leaves_free: Duration,
}

/// The next step of a lease that waits.
pub(super) enum Next {
    /// It continues to wait.
    Wait,
    GiveUp(AcquireFailure),
    /// A probe that is due. Nothing is sent if it is the answers to the last one that are missing.
    Probe,
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
            leaves_free: Duration::ZERO,
        }
    }

    /// Returns when something is to be done if nothing happens before.
    pub(super) fn timeout(&self) -> Timestamp {
        self.free_at().map_or(self.until, |at| at.min(self.until))
    }

    /// Returns when an attempt may start because the key is free, as far as that is known.
    fn free_at(&self) -> Option<Timestamp> {
        let free_at = self.key_watch.as_ref()?.free_at()?;
        Some(free_at.max(self.not_before))
    }

    /// Returns whether the key is watched, and too many nodes have it then for the others to be a quorum.
    pub(super) fn is_taken(&self, at: Timestamp) -> bool {
        let key_watch = self.key_watch.as_ref();
        key_watch.is_some_and(|it| it.is_taken(at))
    }

    /// Lets the look that follows the first attempt at a slot go beyond the deadline, but not beyond `until`. Otherwise
    /// a request that may not wait would fail because of the one slot that it has asked for, although others are free.
    pub(super) fn allow_a_look(&mut self, now: Timestamp, until: Timestamp) {
        let awaits = |key_watch: &KeyWatch| !key_watch.is_settled(now);
        if now >= self.retry.deadline
            && !self.retry.looks_once
            && self.key_watch.as_ref().is_some_and(awaits)
        {
            self.retry.looks_once = true;
            self.retry.deadline = until;
            self.until = until;
        }
    }

    /// Returns what a lease does that looks at the slots of a semaphore once.
    fn next_after_look(&self, now: Timestamp, key_watch: &KeyWatch) -> Next {
        if !key_watch.free_slots(now).is_empty() {
            Next::Attempt
        } else if now < self.until && !key_watch.is_settled(now) {
            Next::Wait
        } else if key_watch.is_taken(now) || key_watch.has_quorum() {
            Next::GiveUp(AcquireFailure::Contended)
        } else {
            Next::GiveUp(AcquireFailure::NoQuorum)
        }
    }

    /// Returns what a lease that has made this many attempts does now. Every lease makes an attempt, even at its
    /// deadline, unless another client has the key.
    pub(super) fn next(&mut self, now: Timestamp, attempts: u32) -> Next {
        self.look_for_writers(now);
        if self.is_taken(now) {
            self.retry.handle_taken();
        }
        if let Some(key_watch) = self.key_watch.as_ref().filter(|_| self.retry.looks_once) {
            return self.next_after_look(now, key_watch);
        }
        let mut is_free = self.free_at().is_some_and(|at| at <= now);
        if is_free && !self.leaves_free.is_zero() {
            self.not_before = now.saturating_add(core::mem::take(&mut self.leaves_free));
            is_free = false;
        }
        if now < self.until && !is_free {
            return Next::Wait;
        }
        if now >= self.retry.deadline {
            // Judged by the deadline, however late the timer comes.
            return if attempts == 0 && !self.is_taken(self.retry.deadline) {
                Next::Attempt
            } else {
                // The timer came too late for another attempt.
                Next::GiveUp(self.failure())
            };
        }
        if self.is_taken(now) || self.awaits_answers(now) {
            Next::Probe
        } else {
            Next::Attempt
        }
    }

    /// Returns whether the answers that are missing to the last probe may still tell that the key is taken, or free. An
    /// attempt would be more work for nodes that are slow because they have too much of it. The wait ends, since a
    /// driver also tells the lease of each node that does not answer.
    pub(super) fn awaits_answers(&self, now: Timestamp) -> bool {
        let key_watch = self.key_watch.as_ref();
        key_watch.is_some_and(|it| !it.is_settled(now))
    }

    /// Has a reader insist once a writer has come and gone.
    fn look_for_writers(&mut self, now: Timestamp) {
        let (Some(writer), Some(key_watch)) = (&mut self.retry.writer, &mut self.key_watch) else {
            return;
        };
        match (*writer, key_watch.has_writer(now)) {
            (Writer::Unseen, Some(true)) => *writer = Writer::Came,
            (Writer::Came, Some(false)) => *writer = Writer::Went,
            _ => {}
        }
        if *writer == Writer::Went {
            key_watch.insist();
        }
    }

    pub(super) fn failure(&self) -> AcquireFailure {
        self.retry.failure.unwrap_or(AcquireFailure::NoQuorum)
    }
}

impl Lease {
    /// Returns when to try or to probe again after a failure, or `None` to give up.
    pub(super) fn next_try(
        &self,
        now: Timestamp,
        failure: AcquireFailure,
        watches: bool,
        retry: &RetryState,
    ) -> Option<Timestamp> {
        // The nodes that have agreed to an adoption do not have the giver's token any more.
        if retry.looks_once || retry.adopts.is_some() {
            return None;
        }
        let schedule = self.config.retry;
        let random = self.nonce.jitter(self.attempts);
        let (deadline, tries) = (retry.deadline, retry.tries(self.attempts));
        match failure {
            AcquireFailure::Quarantined { until } => {
                schedule.next_in_quarantine(deadline, tries, now, until, random)
            }
            _ if watches => schedule.next_probe(deadline, tries, now, random),
            _ => schedule.next_attempt(deadline, tries, now, random),
        }
    }

    /// Returns whether a request for a permit may look at all slots, whatever its deadline: after its first attempt.
    pub(super) fn may_look_once_more(&self, now: Timestamp, retry: &RetryState) -> bool {
        let (schedule, tries) = (self.config.retry, retry.tries(self.attempts));
        let is_allowed = schedule.next_probe(Timestamp::MAX, tries, now, 0).is_some();
        self.slots.is_some() && self.attempts == 1 && is_allowed
    }
}

/// Whether another attempt before the deadline may end otherwise.
pub(super) const fn can_change(failure: AcquireFailure) -> bool {
    match failure {
        AcquireFailure::FenceExhausted | AcquireFailure::Abandoned => false,
        AcquireFailure::Contended
        | AcquireFailure::NoQuorum
        | AcquireFailure::Quarantined { .. }
        | AcquireFailure::TooSlow => true,
    }
}
