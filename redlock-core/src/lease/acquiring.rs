//! An attempt that is under way, and how it ends.

use alloc::boxed::Box;

use super::{agreement::Agreement, held::Fenced, retrying::RetryState, transmit::RoundId};
use crate::{
    AcquireFailure, FencingToken, Timestamp,
    round::{Acquire, AcquireVerdict, Fence, FenceVerdict},
};

/// An attempt to set the key on a majority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquiring {
    pub(super) id: RoundId,
    pub(super) round: Acquire,
    pub(super) retry: RetryState,
}

/// The second part of an attempt whose keys are set: another proposal for the fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fencing {
    pub(super) id: RoundId,
    pub(super) round: Fence,
    /// When the attempt started.
    pub(super) acquired_at: Timestamp,
    pub(super) retry: RetryState,
}

/// The state of an attempt.
pub(super) enum Outcome {
    Won(Won),
    Outbid(OutbidAttempt),
    Failed(FailedAttempt),
}

/// A lock that was won just now.
pub(super) struct Won {
    pub(super) acquired_at: Timestamp,
    pub(super) valid_until: Timestamp,
    pub(super) rests_on: Agreement,
    pub(super) fenced: Option<Box<Fenced>>,
}

/// An attempt whose keys are on a majority, and whose fence is not.
pub(super) struct OutbidAttempt {
    pub(super) acquired_at: Timestamp,
    pub(super) valid_until: Timestamp,
    /// The largest counter that is known.
    pub(super) counter: FencingToken,
    pub(super) retry: RetryState,
}

/// An attempt that failed.
pub(super) struct FailedAttempt {
    pub(super) failure: AcquireFailure,
    /// The largest counter that a node has told.
    pub(super) highest_counter: Option<FencingToken>,
    pub(super) retry: RetryState,
}

impl Acquiring {
    /// Returns when the attempt is given up: when nothing can be won any more, or at the deadline.
    ///
    /// The first attempt may run beyond the deadline, so that even a time shorter than a round trip
    /// gets its one chance. The driver answers for silent nodes in time.
    pub(super) fn timeout(&self, attempts: u32) -> Timestamp {
        give_up_at(self.round.until(), &self.retry, attempts)
    }

    pub(super) fn outcome(&self, now: Timestamp, verdict: AcquireVerdict) -> Outcome {
        let (acquired_at, tally) = (self.round.start(), self.round.tally());
        match verdict {
            AcquireVerdict::Acquired { valid_until, fence } => {
                let votes = match fence {
                    Some(_) => tally.granted(),
                    // A counter that is ahead does not matter: the key is ours.
                    None => tally.granted().union(tally.outbid()),
                };
                let rests_on = Agreement::new(self.id, tally, votes, now);
                Outcome::Won(Won {
                    acquired_at,
                    valid_until,
                    fenced: fence.map(|fence| Box::new(Fenced::new(fence, rests_on.clone()))),
                    rests_on,
                })
            }
            AcquireVerdict::Outbid { counter } => Outcome::Outbid(OutbidAttempt {
                acquired_at,
                valid_until: self.round.valid_until(),
                counter,
                retry: self.retry,
            }),
            AcquireVerdict::Failed(failure) => Outcome::Failed(FailedAttempt {
                failure,
                highest_counter: tally.highest_counter(),
                retry: self.retry,
            }),
        }
    }
}

impl Fencing {
    /// Returns when the attempt is given up, by the rule of [`Acquiring::timeout`].
    pub(super) fn timeout(&self, attempts: u32) -> Timestamp {
        give_up_at(self.round.valid_until(), &self.retry, attempts)
    }

    pub(super) fn outcome(&self, now: Timestamp, verdict: FenceVerdict) -> Outcome {
        let (acquired_at, valid_until) = (self.acquired_at, self.round.valid_until());
        match verdict {
            FenceVerdict::Accepted => {
                let tally = self.round.tally();
                let rests_on = Agreement::new(self.id, tally, tally.granted(), now);
                let fence = self.round.fence();
                Outcome::Won(Won {
                    acquired_at,
                    valid_until,
                    fenced: Some(Box::new(Fenced::new(fence, rests_on.clone()))),
                    rests_on,
                })
            }
            FenceVerdict::Outbid { counter } => Outcome::Outbid(OutbidAttempt {
                acquired_at,
                valid_until,
                counter,
                retry: self.retry,
            }),
            FenceVerdict::Failed(failure) => Outcome::Failed(self.failed(failure)),
        }
    }

    /// Ends the attempt without waiting for the nodes that have not replied. While the keys are still valid, it fails
    /// for the same reason as the attempt before, if there was one.
    pub(super) fn give_up(&self, now: Timestamp) -> Outcome {
        let is_late = now >= self.round.valid_until();
        Outcome::Failed(self.failed(if is_late {
            AcquireFailure::TooSlow
        } else {
            self.retry.failure.unwrap_or(AcquireFailure::NoQuorum)
        }))
    }

    fn failed(&self, failure: AcquireFailure) -> FailedAttempt {
        FailedAttempt {
            failure,
            highest_counter: self.round.tally().highest_counter(),
            retry: self.retry,
        }
    }
}

fn give_up_at(valid_until: Timestamp, retry: &RetryState, attempts: u32) -> Timestamp {
    if attempts == 1 {
        valid_until
    } else {
        valid_until.min(retry.deadline)
    }
}
