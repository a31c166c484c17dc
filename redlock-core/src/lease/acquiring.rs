//! From the first attempt to the verdict: attempts, fences, delays.

use super::{Agreement, Event, Held, Lease, LeaseConfig, Operation, State, holding::Fenced};
use crate::{
    Acquire, AcquireFailure, AcquireVerdict, Fence, FenceVerdict, FencingToken, Timestamp,
};

/// What all attempts of a lease have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// When their time is over.
    pub(super) deadline: Timestamp,
    /// How the last of them failed.
    pub(super) failure: Option<AcquireFailure>,
    /// When the last of them failed, and how many have failed one soon after the other, by weight.
    pub(super) failed_at: Timestamp,
    pub(super) failures: u32,
    /// How often a look found the key taken, instead of an attempt.
    pub(super) probes: u32,
    /// How often the key was free, and somebody else was faster.
    pub(super) missed: u32,
    /// How often the key was free unseen, of late.
    pub(super) unseen: Unseen,
}

/// Openings that nobody told of: the key is taken, but until later than it was, and no news came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Unseen {
    pub(super) count: u32,
    /// Until when the key was taken at the last of them.
    pub(super) until: Timestamp,
    /// When that was found.
    pub(super) found_at: Timestamp,
}

impl Budget {
    pub(super) const fn until(deadline: Timestamp) -> Self {
        Self {
            deadline,
            failure: None,
            failed_at: Timestamp::ZERO,
            failures: 0,
            probes: 0,
            missed: 0,
            unseen: Unseen {
                count: 0,
                until: Timestamp::ZERO,
                found_at: Timestamp::ZERO,
            },
        }
    }

    /// Returns how often the lock was tried, be it only by a look.
    pub(super) fn tries(self, attempts: u32) -> u32 {
        attempts.saturating_add(self.probes)
    }
}

/// When an attempt is given up: when nothing can be won any more, or when the time budget is
/// spent. The first attempt is exempt from the budget, so that even a budget shorter than a round
/// trip has its one chance; the driver answers for silent nodes in time.
pub(super) fn round_deadline(valid_until: Timestamp, budget: Budget, attempts: u32) -> Timestamp {
    if attempts == 1 {
        valid_until
    } else {
        valid_until.min(budget.deadline)
    }
}

impl Lease {
    /// Redlock step 1: the time is read before the first request leaves. Each attempt has a token
    /// of its own, and a proposal of its own if the lock is fenced.
    pub(super) fn attempt(&mut self, now: Timestamp, budget: Budget) {
        self.attempts += 1;
        let LeaseConfig {
            quorum, validity, ..
        } = self.config;
        let token = self.token();
        let fence = self.proposals.as_mut().map(|it| it.draw(now));
        let operation = Operation::Acquire {
            token,
            ttl: validity.ttl(),
            fence,
        };
        let id = self.send(quorum.all(), operation);
        let round = Acquire::new(quorum, validity, token, fence, now);
        self.state = State::Acquiring { id, round, budget };
    }

    pub(super) fn conclude_acquire(
        &mut self,
        now: Timestamp,
        budget: Budget,
        verdict: AcquireVerdict,
    ) {
        let State::Acquiring { id, round, .. } = &self.state else {
            return;
        };
        let (acquired_at, valid_until) = (round.start(), round.valid_until());
        match verdict {
            AcquireVerdict::Acquired { valid_until, fence } => {
                let tally = round.tally();
                let votes = match fence {
                    Some(_) => tally.granted(),
                    // A counter that is ahead does not matter: the key is ours.
                    None => tally.granted().union(tally.outbid()),
                };
                let agreement = Agreement::new(*id, tally, votes, now);
                let fenced = fence.map(|fence| Fenced::with_the_key(fence, agreement.clone()));
                self.hold(acquired_at, valid_until, agreement, fenced);
            }
            AcquireVerdict::Outbid { counter } => {
                self.propose(now, budget, acquired_at, valid_until, counter);
            }
            AcquireVerdict::Failed(failure) => self.fail_attempt(now, budget, failure),
        }
    }

    /// Proposes the fence after `counter` (or after our last, should a node's answer make no
    /// sense), while our keys are on a majority.
    fn propose(
        &mut self,
        now: Timestamp,
        budget: Budget,
        acquired_at: Timestamp,
        valid_until: Timestamp,
        counter: FencingToken,
    ) {
        let fence = self.proposals.as_mut().and_then(|it| it.surpass(counter));
        let Some(fence) = fence else {
            return self.fail_attempt(now, budget, AcquireFailure::FenceExhausted);
        };
        let (quorum, token) = (self.config.quorum, self.token());
        let id = self.send(quorum.all(), Operation::Fence { token, fence });
        self.state = State::Fencing {
            id,
            round: Fence::new(quorum, token, fence, valid_until, now),
            acquired_at,
            budget,
        };
    }

    pub(super) fn conclude_fence(&mut self, now: Timestamp, budget: Budget, verdict: FenceVerdict) {
        let State::Fencing {
            id,
            round,
            acquired_at,
            ..
        } = &self.state
        else {
            return;
        };
        let (acquired_at, valid_until) = (*acquired_at, round.valid_until());
        match verdict {
            FenceVerdict::Accepted => {
                let tally = round.tally();
                let agreement = Agreement::new(*id, tally, tally.granted(), now);
                let fenced = Fenced::after_the_key(round.fence(), agreement.clone());
                self.hold(acquired_at, valid_until, agreement, Some(fenced));
            }
            // No other client can raise the counters of nodes that hold our key, so each round
            // learns of more of them, and there are few.
            FenceVerdict::Outbid { counter } => {
                self.propose(now, budget, acquired_at, valid_until, counter);
            }
            FenceVerdict::Failed(failure) => self.fail_attempt(now, budget, failure),
        }
    }

    fn hold(
        &mut self,
        acquired_at: Timestamp,
        valid_until: Timestamp,
        agreement: Agreement,
        fenced: Option<Fenced>,
    ) {
        let due = self
            .config
            .keep_alive
            .next_extension(acquired_at, acquired_at);
        let token = self.token();
        let fence = fenced.as_ref().map(Fenced::fence);
        let granted_by = agreement.votes();
        let ttl = self.config.validity.ttl();
        let keys_until = acquired_at.saturating_add(ttl.as_duration());
        self.state = State::Held(Held::new(
            token,
            acquired_at,
            valid_until,
            keys_until,
            due,
            agreement,
            fenced,
        ));
        self.events.push_back(Event::Acquired {
            valid_until,
            fence,
            granted_by,
        });
    }

    /// Redlock step 5: a failed attempt is released on every node, the silent ones included.
    pub(super) fn fail_attempt(&mut self, now: Timestamp, budget: Budget, failure: AcquireFailure) {
        self.note_counters();
        self.send_release(self.token());
        let random = self.nonce.jitter(self.attempts);
        let retry = self.config.retry;
        let tries = budget.tries(self.attempts);
        let watches = failure == AcquireFailure::Contended && retry.has_probes();
        let next = match failure {
            AcquireFailure::Quarantined { until } => {
                retry.next_in_quarantine(budget.deadline, tries, now, until, random)
            }
            _ if watches => {
                let unseen = budget.unseen.count;
                retry.next_probe(budget.deadline, tries, now, random, unseen)
            }
            _ => retry.next_attempt(budget.deadline, tries, now, random),
        };
        // No token is used twice, not even after four billion attempts.
        let may_go_on = self.attempts < u32::MAX && can_change(failure);
        let Some(until) = next.filter(|_| may_go_on) else {
            return self.exhaust(failure);
        };
        let budget = Budget {
            failure: Some(failure),
            ..budget
        };
        if watches {
            self.watch(now, until, budget);
        } else {
            self.state = State::Backoff {
                until,
                not_before: until,
                budget,
                vigil: None,
            };
        }
    }

    /// Remembers the largest counter that a node has told of, also in an attempt that failed.
    fn note_counters(&mut self) {
        let tally = match &self.state {
            State::Acquiring { round, .. } => round.tally(),
            State::Fencing { round, .. } => round.tally(),
            _ => return,
        };
        if let (Some(proposals), Some(counter)) = (&mut self.proposals, tally.highest_counter()) {
            proposals.note(counter);
        }
    }

    pub(super) fn exhaust(&mut self, failure: AcquireFailure) {
        self.state = State::Closed;
        self.events.push_back(Event::Exhausted {
            failure,
            attempts: self.attempts,
        });
    }
}

/// Whether another attempt within the budget may end otherwise.
const fn can_change(failure: AcquireFailure) -> bool {
    match failure {
        AcquireFailure::FenceExhausted | AcquireFailure::Abandoned => false,
        AcquireFailure::Contended
        | AcquireFailure::NoQuorum
        | AcquireFailure::Quarantined { .. }
        | AcquireFailure::TooSlow => true,
    }
}
