use core::fmt;

use super::{Round, Rules};
use crate::{FencingToken, Quorum, Timestamp, Validity, tally::Tally};

/// One attempt to set our key on a majority of nodes (Redlock steps 1 to 3).
///
/// The caller sends `SET key token NX PX ttl` to every node at once.
pub(crate) type Acquire = Round<AcquireRules>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AcquireRules {
    fence: Option<FencingToken>,
    valid_until: Timestamp,
    /// Nothing can be won from then on.
    until: Timestamp,
}

impl Acquire {
    /// Starts an attempt at `now`, which must be read *before* the first request leaves
    /// (Redlock step 1). With `fence`, the nodes are asked to raise their counters to it as well.
    #[must_use]
    pub(crate) fn new(
        quorum: Quorum,
        validity: Validity,
        fence: Option<FencingToken>,
        now: Timestamp,
    ) -> Self {
        let valid_until = validity.until(now);
        let rules = AcquireRules {
            fence,
            valid_until,
            until: valid_until,
        };
        Self::with_rules(rules, quorum, now)
    }

    /// Lets the attempt succeed only before `until`, although the lock would be valid for longer.
    pub(crate) fn by(mut self, until: Timestamp) -> Self {
        self.rules.until = self.rules.until.min(until);
        self
    }

    /// Ends the attempt without waiting for the nodes that have not replied. Returns the verdict
    /// unless it was returned before.
    ///
    /// `suspicion` is the failure of the attempt before this one, if there was one. The same reason
    /// probably stands in the way of this attempt, unless a node says otherwise.
    pub(crate) fn give_up(
        &mut self,
        now: Timestamp,
        suspicion: Option<AcquireFailure>,
    ) -> Option<AcquireVerdict> {
        let failure = if now >= self.until() {
            AcquireFailure::TooSlow
        } else if !self.tally.denied().is_empty() {
            AcquireFailure::Contended
        } else {
            suspicion.unwrap_or(AcquireFailure::NoQuorum)
        };
        self.end_with(AcquireVerdict::Failed(failure))
    }

    /// Returns the end of validity, if the attempt succeeds.
    #[must_use]
    pub(crate) const fn valid_until(&self) -> Timestamp {
        self.rules.valid_until
    }

    /// Returns when the attempt cannot succeed any more: at the end of its validity, or before.
    #[must_use]
    pub(crate) const fn until(&self) -> Timestamp {
        self.rules.until
    }
}

impl Rules for AcquireRules {
    type Verdict = AcquireVerdict;

    fn judge(&self, tally: &Tally, now: Timestamp) -> Option<AcquireVerdict> {
        let ours = tally.granted().union(tally.outbid());
        // Redlock step 3: a majority of *all* nodes, and validity time left.
        if tally.is_quorum(ours) {
            return Some(if now >= self.until {
                AcquireVerdict::Failed(AcquireFailure::TooSlow)
            } else if self.fence.is_none() || tally.is_quorum(tally.granted()) {
                AcquireVerdict::Acquired {
                    valid_until: self.valid_until,
                    fence: self.fence,
                }
            } else {
                // Nodes that have not replied might still accept the fence. A second round costs less than
                // to wait for the slowest.
                AcquireVerdict::Outbid {
                    counter: tally.highest_counter().unwrap_or(FencingToken::MAX),
                }
            });
        }
        let held_up = tally.failed().union(tally.quarantined());
        if tally.is_blocking(tally.failed()) {
            Some(AcquireVerdict::Failed(AcquireFailure::NoQuorum))
        } else if tally.is_blocking(held_up) {
            Some(AcquireVerdict::Failed(match tally.quarantined_until() {
                // The authority that names them is out of reach, or has named other servers.
                Timestamp::MAX => AcquireFailure::NoQuorum,
                until => AcquireFailure::Quarantined { until },
            }))
        } else if tally.is_blocking(held_up.union(tally.denied())) {
            Some(AcquireVerdict::Failed(AcquireFailure::Contended))
        } else {
            None
        }
    }
}

/// The end of an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum AcquireVerdict {
    /// A majority holds our key, and there is validity left.
    Acquired {
        /// The end of validity.
        valid_until: Timestamp,
        /// The fence that a majority accepted, if one was proposed.
        fence: Option<FencingToken>,
    },
    /// A majority holds our key, but no majority has accepted the fence. While the keys are ours, a
    /// [`Fence`](crate::Fence) round can propose a larger one.
    Outbid {
        /// The largest counter that is known.
        counter: FencingToken,
    },
    /// The attempt failed. Its token must be released on *every* node, also on those that have
    /// not replied, and never be used again (Redlock step 5).
    Failed(AcquireFailure),
}

/// The reason why an attempt to acquire failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireFailure {
    /// Another token holds the key on nodes that were needed.
    Contended,
    /// Too many nodes failed for the others to be a majority. A node whose vote does not count, and of which
    /// nobody knows when it will count, has failed too.
    NoQuorum,
    /// Nodes that were needed came up so recently that they have no vote.
    Quarantined {
        /// When the first of them has one. It may be the one that is missing to a majority.
        until: Timestamp,
    },
    /// A majority agreed after the validity was spent, or no majority agreed or refused until then.
    TooSlow,
    /// The fencing counters have reached [`FencingToken::MAX`].
    FenceExhausted,
    /// The driver ended. Only a [`Lease`](crate::Lease) ends like this, and no round.
    Abandoned,
}

impl fmt::Display for AcquireFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contended => "held by another client",
            Self::NoQuorum => "no quorum of nodes answered",
            Self::Quarantined { .. } => "nodes that came up too recently have no vote yet",
            Self::TooSlow => "the nodes answered after the validity was spent",
            Self::FenceExhausted => "there is no larger fencing token",
            Self::Abandoned => "given up half-way",
        })
    }
}

#[cfg(test)]
mod tests;
