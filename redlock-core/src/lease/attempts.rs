//! From the first attempt to the verdict: attempts and fences.

use alloc::boxed::Box;

use super::{
    Lease, State,
    acquiring::{Acquiring, FailedAttempt, Fencing, OutbidAttempt, Outcome, Won},
    config::LeaseConfig,
    event::Event,
    held::{Extension, Fenced, Held, Holder},
    retrying::{Backoff, RetryState, can_change},
    transferring::Adoption,
    transmit::Operation,
};
use crate::{
    AcquireFailure, SlotSet, Timestamp,
    round::{Acquire, Fence},
};

impl Lease {
    /// Redlock step 1: the time is read before the first request leaves. Each attempt has a token
    /// of its own, and a proposal of its own if the lock is fenced. If the lock is a semaphore, the attempt is for one
    /// slot, the same on all nodes.
    pub(super) fn attempt(&mut self, now: Timestamp, retry: RetryState, best_slots: SlotSet) {
        self.prepare_access(best_slots, retry.insists());
        self.attempts += 1;
        let LeaseConfig {
            quorum, validity, ..
        } = *self.config;
        let token = self.token();
        let fence = self.proposals.as_mut().map(|proposals| proposals.draw(now));
        let ttl = validity.ttl();
        let operation = match retry.adopts {
            None => Operation::Acquire { token, ttl, fence },
            Some(Adoption { giver, .. }) => Operation::Adopt {
                giver,
                token,
                ttl,
                fence,
            },
        };
        let round = Acquire::new(quorum, validity, fence, now);
        self.state = State::Acquiring(Box::new(Acquiring {
            id: self.outbox.ask(quorum.all(), operation),
            round: match retry.adopts {
                None => round,
                Some(Adoption { until, .. }) => round.by(until),
            },
            retry,
        }));
    }

    /// Goes on after an attempt has ended. Does nothing while there is no outcome.
    pub(super) fn conclude_attempt(&mut self, now: Timestamp, outcome: Option<Outcome>) {
        match outcome {
            None => {}
            Some(Outcome::Won(won)) => self.hold(won),
            // No other client can raise the counters of nodes that hold our key. So each round learns
            // more of these counters, and few rounds are needed.
            Some(Outcome::Outbid(outbid)) => self.propose(now, &outbid),
            Some(Outcome::Failed(failed)) => self.fail_attempt(now, &failed),
        }
    }

    /// Proposes the fence after the largest counter while our keys are on a majority. If a node told a
    /// counter below our last proposal, which makes no sense, the next fence follows that proposal.
    fn propose(&mut self, now: Timestamp, outbid: &OutbidAttempt) {
        let OutbidAttempt {
            acquired_at,
            valid_until,
            counter,
            retry,
        } = *outbid;
        let fence = self
            .proposals
            .as_mut()
            .and_then(|proposals| proposals.surpass(counter));
        let Some(fence) = fence else {
            return self.fail_attempt(
                now,
                &FailedAttempt {
                    failure: AcquireFailure::FenceExhausted,
                    highest_counter: Some(counter),
                    retry,
                },
            );
        };
        let (quorum, token) = (self.config.quorum, self.token());
        let operation = Operation::Fence { token, fence };
        self.state = State::Fencing(Box::new(Fencing {
            id: self.outbox.ask(quorum.all(), operation),
            round: Fence::new(quorum, fence, valid_until, now),
            acquired_at,
            retry,
        }));
    }

    fn hold(&mut self, won: Won) {
        let LeaseConfig {
            validity,
            keep_alive,
            ..
        } = *self.config;
        let Won {
            acquired_at,
            valid_until,
            rests_on,
            fenced,
        } = won;
        self.outbox.tell(Event::Acquired {
            valid_until,
            fence: fenced.as_deref().map(Fenced::fence),
            granted_by: rests_on.votes(),
        });
        let mut held = Held {
            holder: Holder::Awaited { since: acquired_at },
            valid_until,
            keys_until: acquired_at.saturating_add(validity.ttl().as_duration()),
            rests_on,
            fenced,
            extension: Extension::Idle {
                due: keep_alive.next_extension(acquired_at, acquired_at),
                last: None,
            },
            changes: None,
        };
        if self.is_reader() {
            // Readers that are in go on, even if a writer waits.
            self.turn_to_reader(true);
        }
        held.hasten(&self.config);
        self.state = State::Held(held);
    }

    /// Redlock step 5: a failed attempt is released on every node, the silent ones included.
    fn fail_attempt(&mut self, now: Timestamp, failed: &FailedAttempt) {
        if let (Some(proposals), Some(counter)) = (&mut self.proposals, failed.highest_counter) {
            proposals.note(counter);
        }
        self.release_in_passing();
        let failure = failed.failure;
        let watches = failure == AcquireFailure::Contended && self.config.retry.has_probes();
        let next = self.next_try(now, failure, watches, &failed.retry);
        let looks = watches && self.may_look_once_more(now, &failed.retry);
        let next = next.or(looks.then_some(now));
        // No token is used twice, not even after four billion attempts.
        let may_go_on = self.attempts < u32::MAX && can_change(failure);
        let Some(until) = next.filter(|_| may_go_on) else {
            return self.exhaust(failure);
        };
        // One slot that is taken says nothing of the others.
        if watches && self.slots.is_none() && self.falls_in_line(now, &failed.retry) {
            return;
        }
        if watches {
            self.watch(now, until, failed);
        } else {
            let retry = RetryState {
                failure: Some(failure),
                ..failed.retry
            };
            self.state = State::Backoff(Box::new(Backoff::until(until, retry)));
        }
    }

    pub(super) fn exhaust(&mut self, failure: AcquireFailure) {
        let tries = self.tries();
        self.state = State::Closed;
        self.outbox.tell(Event::Exhausted { failure, tries });
    }
}
