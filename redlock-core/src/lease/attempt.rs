//! From the first attempt to the verdict.

use alloc::boxed::Box;

use super::{
    End, Lease, State,
    event::Event,
    held::{Extension, Fenced, Finished, Held, Last, Presence},
    retrying::{Backoff, RetryState, can_change},
    transferring::Adoption,
    transmit::{Operation, RoundId},
};
use crate::{
    AcquireFailure, FencingToken, NodeSet, SlotSet, Timestamp,
    round::{Acquire, AcquireVerdict},
};

/// An attempt to set the key on a majority, and the fencing token if the lock is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) id: RoundId,
    /// The round that is under way: the first one, or another proposal for the token.
    pub(super) round: Acquire,
    /// When the first round started.
    acquired_at: Timestamp,
    pub(super) retry: RetryState,
}

impl Attempt {
    /// Returns when the attempt is given up: when nothing can be won any more, or at the deadline.
    ///
    /// The first attempt may run beyond the deadline, so that even a time shorter than a round trip
    /// gets its one chance. The driver answers for silent nodes in time.
    pub(super) fn timeout(&self, attempts: u32) -> Timestamp {
        let until = self.round.until();
        if attempts == 1 {
            until
        } else {
            until.min(self.retry.deadline)
        }
    }
}

impl Lease {
    /// Redlock step 1: the time is read before the first request leaves. Each attempt has a token
    /// of its own, and a proposal of its own if the lock is fenced. If the lock is a semaphore, the attempt is for one
    /// slot, the same on all nodes.
    pub(super) fn attempt(&mut self, now: Timestamp, retry: RetryState, best_slots: SlotSet) {
        self.prepare_access(best_slots, retry.insists());
        self.attempts += 1;
        let (quorum, validity) = (self.config.quorum, self.config.validity);
        let token = self.token();
        let fence = self.proposals.as_mut().map(|proposals| proposals.draw(now));
        let ttl = validity.ttl();
        let round = Acquire::new(quorum, validity, fence, now);
        let (operation, round) = match retry.adopts {
            None => (Operation::Acquire { token, ttl, fence }, round),
            Some(Adoption { giver, until }) => {
                let operation = Operation::Adopt {
                    giver,
                    token,
                    ttl,
                    fence,
                };
                (operation, round.by(until))
            }
        };
        self.state = State::Acquiring(Box::new(Attempt {
            id: self.outbox.ask(quorum.all(), operation),
            round,
            acquired_at: now,
            retry,
        }));
    }

    /// Goes on after a round of an attempt. Does nothing while there is no verdict.
    pub(super) fn conclude_attempt(&mut self, now: Timestamp, verdict: Option<AcquireVerdict>) {
        let (State::Acquiring(attempt), Some(verdict)) = (&self.state, verdict) else {
            return;
        };
        let (acquired_at, tally) = (attempt.acquired_at, attempt.round.tally());
        match verdict {
            AcquireVerdict::Acquired { valid_until, fence } => {
                let mut tally = tally.clone();
                if fence.is_none() {
                    // A counter that is ahead does not matter: the key is ours.
                    tally.granted = tally.granted.union(tally.outbid);
                    tally.outbid = NodeSet::EMPTY;
                }
                let rests_on = Finished::new(attempt.id, tally);
                self.hold(acquired_at, valid_until, fence, rests_on);
            }
            AcquireVerdict::Outbid { counter } => self.propose(now, counter),
            AcquireVerdict::Failed(failure) => {
                let counter = attempt.round.highest_counter();
                self.fail_attempt(now, failure, counter);
            }
        }
    }

    /// Proposes the fence after the largest counter while our keys are on a majority. If a node told a
    /// counter below our last proposal, which makes no sense, the next fence follows that proposal.
    ///
    /// No other client can raise the counters of nodes that hold our key. So each round learns
    /// more of these counters, and few rounds are needed.
    fn propose(&mut self, now: Timestamp, counter: FencingToken) {
        let (quorum, token) = (self.config.quorum, self.token());
        let proposals = self.proposals.as_mut();
        let Some(fence) = proposals.and_then(|proposals| proposals.surpass(counter)) else {
            return self.fail_attempt(now, AcquireFailure::FenceExhausted, Some(counter));
        };
        let operation = Operation::Fence { token, fence };
        if let State::Acquiring(attempt) = &mut self.state {
            attempt.id = self.outbox.ask(quorum.all(), operation);
            attempt.round = attempt.round.propose(fence, now);
        }
    }

    fn hold(
        &mut self,
        acquired_at: Timestamp,
        valid_until: Timestamp,
        fence: Option<FencingToken>,
        rests_on: Finished,
    ) {
        self.outbox.tell(Event::Acquired {
            valid_until,
            fence,
            granted_by: rests_on.tally.granted,
        });
        let (validity, keep_alive) = (self.config.validity, self.config.keep_alive);
        let fenced = |fence| {
            let by = rests_on.clone();
            Box::new(Fenced { fence, by })
        };
        let mut held = Held {
            presence: Presence::Awaited { since: acquired_at },
            valid_until,
            keys_until: acquired_at.saturating_add(validity.ttl().as_duration()),
            fenced: fence.map(fenced),
            rests_on,
            extension: Extension::Idle {
                due: keep_alive.next_extension(acquired_at, acquired_at),
                last: Last::None,
            },
            changes: None,
        };
        if self.is_reader() {
            // Readers that are in go on, even if a writer waits.
            self.aim_at_reader(true);
        }
        held.hasten(&self.config);
        self.state = State::Held(Box::new(held));
    }

    /// Redlock step 5: a failed attempt is released on every node, the silent ones included. `counter` is the
    /// largest one that a node has told.
    fn fail_attempt(
        &mut self,
        now: Timestamp,
        failure: AcquireFailure,
        counter: Option<FencingToken>,
    ) {
        let State::Acquiring(attempt) = &self.state else {
            return;
        };
        let retry = attempt.retry;
        if let (Some(proposals), Some(counter)) = (&mut self.proposals, counter) {
            proposals.note(counter);
        }
        self.release_in_passing();
        let watches = failure == AcquireFailure::Contended && self.config.retry.has_probes();
        let next = self.next_try(now, failure, watches, &retry);
        let looks = watches && self.may_look_once_more(now, &retry);
        let next = next.or(looks.then_some(now));
        // No token is used twice, not even after four billion attempts.
        let may_go_on = self.attempts < u32::MAX && can_change(failure);
        let Some(until) = next.filter(|_| may_go_on) else {
            return self.exhaust(failure);
        };
        // One slot that is taken says nothing of the others. A second one, which was seen free, shows that others want
        // it too.
        let is_contended = self.slots.is_none() || self.attempts > 1;
        if watches && is_contended && self.falls_in_line(now, &retry) {
            return;
        }
        if watches {
            self.watch(now, until, retry);
        } else {
            let failure = Some(failure);
            let retry = RetryState { failure, ..retry };
            self.state = State::Backoff(Box::new(Backoff::until(until, retry)));
        }
    }

    pub(super) fn exhaust(&mut self, failure: AcquireFailure) {
        let tries = self.tries();
        self.end(End::Exhausted { failure, tries });
    }
}
