//! Between two attempts: what is remembered, how long the lease waits, and what it does then.

use core::time::Duration;

use super::{Lease, gathering::GatheringPlan, key_watch::KeyWatch, transferring::Adoption};
use crate::{AcquireFailure, RetrySchedule, Timestamp};

/// By how much the expiry of one key may differ from probe to probe: the server counts in whole
/// milliseconds, and the reply takes some time.
const EXPIRY_TOLERANCE: Duration = Duration::from_millis(5);

/// How many other clients a client reckons with that knows nothing of them.
const USUAL_COMPETITORS: u32 = 3;

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
    /// How often the key was free, and another client was faster.
    pub(super) missed: u32,
    /// How many other clients to reckon with.
    pub(super) competitors: u32,
    pub(super) unseen: UnseenOpenings,
    /// When to gather the keys, if the lock has several.
    pub(super) gathering: Option<GatheringPlan>,
    /// What a reader has seen of writers. `None` if the lease is none.
    pub(super) writer: Option<Writer>,
    /// The deadline has passed, and only one look at the slots of a semaphore is left, and one attempt.
    pub(super) looks_once: bool,
    /// The lock that its only attempt adopts, if it does not ask for a free one.
    pub(super) adopts: Option<Adoption>,
}

/// What a reader that waits has seen of writers.
///
/// A writer that waits marks the key, and so keeps new readers out. Without a limit, busy writers would keep a reader out
/// for ever. So a reader waits for one writer that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Unseen,
    Came,
    Went,
}

/// Times at which the key was free, and which no notification announced: the key is taken by now, but
/// expires later than it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UnseenOpenings {
    pub(super) count: u32,
    last: Option<Opening>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Opening {
    /// When the key expires that was found then.
    until: Timestamp,
    found_at: Timestamp,
}

impl RetryState {
    pub(super) const fn new(deadline: Timestamp, gathering: Option<GatheringPlan>) -> Self {
        Self {
            deadline,
            failure: None,
            collisions: 0,
            probes: 0,
            missed: 0,
            competitors: USUAL_COMPETITORS,
            unseen: UnseenOpenings {
                count: 0,
                last: None,
            },
            gathering,
            writer: None,
            looks_once: false,
            adopts: None,
        }
    }

    /// Returns the same for a reader. Readers let each other in, so a reader has no reason to let others go first when the
    /// key is free.
    pub(super) const fn of_reader(self) -> Self {
        Self {
            missed: u32::MAX,
            writer: Some(Writer::Unseen),
            ..self
        }
    }

    /// Returns whether a reader has waited for a writer, and need not wait for the next one.
    pub(super) fn insists(&self) -> bool {
        self.writer == Some(Writer::Went)
    }

    /// Returns how often the lock was tried, by attempts or scheduled probes.
    pub(super) fn tries(&self, attempts: u32) -> u32 {
        attempts.saturating_add(self.probes)
    }

    /// Returns when to gather the keys, if that is of any use: another client has some of them.
    pub(super) fn gathers_at(&self) -> Option<Timestamp> {
        let is_contended = self.failure == Some(AcquireFailure::Contended);
        self.gathering.filter(|_| is_contended).map(|plan| plan.due)
    }

    /// Counts an attempt that failed because of another client. The first attempt finds the key taken, and has
    /// missed no opening.
    pub(super) fn handle_defeat(&mut self) {
        if self.failure.replace(AcquireFailure::Contended).is_some() {
            self.handle_missed();
        }
        self.collisions = self.collisions.saturating_add(1);
    }

    /// Notes that another client has the key, so the collisions before are settled. If they still counted, a
    /// client would back off for longer the longer it waits, and clients that come later would overtake it.
    pub(super) fn handle_taken(&mut self) {
        self.collisions = 0;
    }

    /// Returns how often to probe a free key again before trying.
    ///
    /// In the round trip of each probe others may be faster. Each time that they were, there is one probe less, so the
    /// client that has waited longest comes first. Otherwise one client would win again and again, since servers notify
    /// their clients in a fixed order. Clients are told apart if there are no more of them than competitors; among more of them,
    /// chance decides.
    pub(super) fn rechecks(&self) -> u32 {
        self.competitors.saturating_sub(self.missed)
    }

    /// Counts an opening in which another client was faster.
    pub(super) fn handle_missed(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }
}

impl UnseenOpenings {
    /// Counts the opening that the last probe has found, if there is one. A client that gets
    /// notifications need not probe faster, and neither need one whose key stays with its holder.
    pub(super) fn after_probe(
        self,
        now: Timestamp,
        key_watch: &KeyWatch,
        retry: &RetrySchedule,
    ) -> Self {
        // A mark that is renewed is no opening.
        let is_still = !key_watch.has_news() && !key_watch.is_marked();
        let Some(until) = key_watch.free_at().filter(|_| is_still) else {
            return Self { count: 0, ..self };
        };
        let found = Some(Opening {
            until,
            found_at: now,
        });
        match self.last {
            None => Self {
                last: found,
                ..self
            },
            Some(last) if until > last.until.saturating_add(EXPIRY_TOLERANCE) => Self {
                count: self.count.saturating_add(1),
                last: found,
            },
            Some(last) => {
                let quiet = now.saturating_duration_since(last.found_at);
                let count = if retry.is_long(quiet) { 0 } else { self.count };
                Self { count, ..self }
            }
        }
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
}

/// The next step of a lease that waits.
pub(super) enum Next {
    /// It continues to wait.
    Wait,
    GiveUp(AcquireFailure),
    /// A probe that is due, or that rechecks whether the key is still free.
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

    /// Lets the look that follows the first attempt at a slot go beyond the deadline, but not beyond `until`. Otherwise a
    /// request that may not wait would fail because of the one slot that it has asked for, although others are free.
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
        // Before the first attempt, others are only assumed.
        if attempts > 0 || now >= self.not_before {
            self.look_for_writers(now);
        }
        if let Some(key_watch) = &mut self.key_watch
            && key_watch.is_taken(now)
        {
            self.retry.handle_taken();
            if key_watch.take_was_free() {
                self.retry.handle_missed();
                key_watch.set_rechecks(self.retry.rechecks());
            }
        }
        if let Some(key_watch) = self.key_watch.as_ref().filter(|_| self.retry.looks_once) {
            return self.next_after_look(now, key_watch);
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
                .is_some_and(|watch| watch.is_taken(deadline));
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
        } else if now < self.until && key_watch.take_recheck(now) {
            Next::Confirm
        } else {
            Next::Attempt
        }
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
            _ if watches => {
                let hasty = schedule.with_haste(retry.unseen.count);
                hasty.next_probe(deadline, tries, now, random)
            }
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

/// The time for which a lease backs off before its first attempt, so that other clients go first. See
/// [`Lease::back_off`](crate::Lease::back_off).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Pause {
    /// When it is over.
    pub until: Timestamp,
    /// The clients that it is for.
    pub others: Others,
    /// How many other clients to reckon with: so many can come first, those that have waited longest before the others.
    pub competitors: u32,
}

/// The other clients that may want a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Others {
    /// None came recently.
    None,
    /// They are notified when the lock is free.
    Notified,
    /// They may poll. A probe shows whether they come.
    Polling,
}

impl Pause {
    /// Creates a pause for these clients, three at most.
    #[must_use]
    pub const fn new(until: Timestamp, others: Others) -> Self {
        Self {
            until,
            others,
            competitors: USUAL_COMPETITORS,
        }
    }

    /// Returns the same pause for up to so many other clients. Each costs a round trip before the attempt.
    #[must_use]
    pub const fn for_competitors(self, competitors: u32) -> Self {
        Self {
            competitors,
            ..self
        }
    }

    /// Returns whether more time is left after the pause than the pause takes.
    pub(super) fn fits(&self, now: Timestamp, deadline: Timestamp) -> bool {
        let time = self.until.saturating_duration_since(now);
        self.until.saturating_add(time) < deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, Quorum, Reply, Slot, lease::transmit::RoundId, said::MS};

    #[test]
    fn a_client_that_is_notified_need_not_probe_faster() {
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        let retry = RetrySchedule::new(MS(20)..=MS(200)).unwrap();
        let node = NodeId::new(0).unwrap();
        let watch = |until| {
            let mut key_watch = KeyWatch::new(RoundId(1), Quorum::majority(1).unwrap(), 0);
            key_watch.handle_reply(node, Reply::Taken { until });
            key_watch
        };
        let mut unseen = UnseenOpenings::default();
        for second in 1..=3 {
            let now = at(1000 * second);
            unseen = unseen.after_probe(now, &watch(at(1000 * second + 900)), &retry);
        }
        assert_eq!(unseen.count, 2, "two other holders came unnoticed");
        let mut notified = watch(at(9000));
        notified.handle_freed(node, Slot::FIRST);
        assert_eq!(unseen.after_probe(at(4000), &notified, &retry).count, 0);
    }

    #[test]
    fn a_waiter_rechecks_less_the_longer_it_has_waited() {
        let rechecks_after = |missed| {
            let mut retry = RetryState::new(Timestamp::MAX, None);
            retry.missed = missed;
            retry.rechecks()
        };
        let rechecks = [0, 1, 2, 3, 4, u32::MAX].map(rechecks_after);
        assert_eq!(rechecks, [3, 2, 1, 0, 0, 0]);
    }

    #[test]
    fn a_pause_leaves_as_much_time_as_it_takes() {
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        let pause = Pause {
            until: at(22),
            others: Others::Notified,
            competitors: USUAL_COMPETITORS,
        };
        assert!(pause.fits(at(20), at(25)) && !pause.fits(at(20), at(24)));
    }
}
