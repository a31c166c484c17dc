use core::fmt;

use super::{Round, Rules};
use crate::{Eligibility, FencingToken, Quorum, Reply, Timestamp, Validity, tally::Tally};

/// One attempt to set our key on a majority of nodes (Redlock steps 1 to 3).
///
/// The caller sends `SET key token NX PX ttl` to every node at once. If counters turn out to be ahead of the fence,
/// another round proposes a larger one ([`Round::propose`]).
pub(crate) type Acquire = Round<AcquireRules>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AcquireRules {
    fence: Option<FencingToken>,
    /// Whether an earlier round has set the keys, and only the fence is missing.
    has_keys: bool,
    valid_until: Timestamp,
    /// Nothing can be won from then on.
    until: Timestamp,
    /// The earliest start of a round in which one of the quarantined nodes has a vote, or [`Timestamp::MAX`] if no node
    /// is in quarantine, or if nobody knows when such a node has a vote.
    quarantined_until: Timestamp,
    /// The largest fencing counter that a node has told, with or without a vote.
    highest_counter: Option<FencingToken>,
}

impl Acquire {
    /// Starts an attempt at `now`, which must be read *before* the first request leaves
    /// (Redlock step 1). With `fence`, the nodes are asked to raise their counters to it as well.
    pub(crate) fn new(
        quorum: Quorum,
        validity: Validity,
        fence: Option<FencingToken>,
        now: Timestamp,
    ) -> Self {
        let valid_until = validity.until(now);
        let rules = AcquireRules {
            fence,
            has_keys: false,
            valid_until,
            until: valid_until,
            quarantined_until: Timestamp::MAX,
            highest_counter: None,
        };
        Self::with_rules(rules, quorum, now)
    }

    /// Lets the attempt succeed only before `until`, although the lock would be valid for longer.
    pub(crate) fn by(mut self, until: Timestamp) -> Self {
        self.rules.until = self.rules.until.min(until);
        self
    }

    /// Starts a further proposal for the fencing token at `now`, while our keys are on a majority.
    ///
    /// The caller asks every node to raise its counter to the fence if its key has our token, and if the
    /// counter is smaller. A majority of accepts makes the fence ours: two such majorities share a node,
    /// on which the two clients' keys existed at different times, so the later accept there is strictly
    /// larger.
    pub(crate) fn propose(&self, fence: FencingToken, now: Timestamp) -> Self {
        let valid_until = self.rules.valid_until;
        let rules = AcquireRules {
            fence: Some(fence),
            has_keys: true,
            valid_until,
            until: valid_until,
            quarantined_until: Timestamp::MAX,
            highest_counter: None,
        };
        Self::with_rules(rules, self.tally.quorum, now)
    }

    /// Ends the attempt without waiting for the nodes that have not replied. Returns the verdict
    /// unless it was returned before.
    ///
    /// `suspicion` is the failure of the attempt before this one, if there was one. The same reason
    /// probably stands in the way of this attempt, unless a node denies the keys.
    pub(crate) fn give_up(
        &mut self,
        now: Timestamp,
        suspicion: Option<AcquireFailure>,
    ) -> Option<AcquireVerdict> {
        let failure = if now >= self.until() {
            AcquireFailure::TooSlow
        } else if !self.rules.has_keys && !self.tally.denied.is_empty() {
            AcquireFailure::Contended
        } else {
            suspicion.unwrap_or(AcquireFailure::NoQuorum)
        };
        self.end_with(AcquireVerdict::Failed(failure))
    }

    /// Returns when the attempt cannot succeed any more: at the end of its validity, or before.
    pub(crate) const fn until(&self) -> Timestamp {
        self.rules.until
    }

    /// Returns the largest fencing counter that a node has told.
    pub(crate) const fn highest_counter(&self) -> Option<FencingToken> {
        self.rules.highest_counter
    }
}

impl Rules for AcquireRules {
    type Verdict = AcquireVerdict;

    fn note_reply(&mut self, reply: Reply) {
        if let Reply::Outbid { counter } = reply {
            self.highest_counter = self.highest_counter.max(Some(counter));
        }
    }

    fn note_quarantine(&mut self, start: Timestamp, eligibility: Eligibility) {
        // Nobody knows when the next confirmation of an owner comes that is no longer confirmed.
        let has_expired = eligibility.starts_at() <= start && eligibility.ends_at() < start;
        if !has_expired {
            self.quarantined_until = self.quarantined_until.min(eligibility.starts_at());
        }
    }

    fn judge(&self, tally: &Tally, now: Timestamp) -> Option<AcquireVerdict> {
        if self.has_keys {
            self.judge_proposal(tally, now)
        } else {
            self.judge_keys(tally, now)
        }
    }
}

impl AcquireRules {
    fn judge_keys(&self, tally: &Tally, now: Timestamp) -> Option<AcquireVerdict> {
        let ours = tally.granted.union(tally.outbid);
        // Redlock step 3: a majority of *all* nodes, and validity time left.
        if tally.is_quorum(ours) {
            let is_accepted = self.fence.is_none() || tally.is_quorum(tally.granted);
            // Nodes that have not replied might still accept the fence. A second round costs less than
            // to wait for the slowest.
            return Some(self.agreed(now, is_accepted));
        }
        let held_up = tally.failed.union(tally.quarantined);
        if tally.is_blocking(tally.failed) {
            Some(AcquireVerdict::Failed(AcquireFailure::NoQuorum))
        } else if tally.is_blocking(held_up) {
            Some(AcquireVerdict::Failed(match self.quarantined_until {
                // The authority that names them is out of reach, or has named other servers.
                Timestamp::MAX => AcquireFailure::NoQuorum,
                until => AcquireFailure::Quarantined { until },
            }))
        } else if tally.is_blocking(held_up.union(tally.denied)) {
            Some(AcquireVerdict::Failed(AcquireFailure::Contended))
        } else {
            None
        }
    }

    fn judge_proposal(&self, tally: &Tally, now: Timestamp) -> Option<AcquireVerdict> {
        let held_up = tally.failed.union(tally.quarantined);
        let lost = held_up.union(tally.denied);
        if tally.is_quorum(tally.granted) {
            Some(self.agreed(now, true))
        } else if tally.is_blocking(held_up) {
            Some(AcquireVerdict::Failed(AcquireFailure::NoQuorum))
        } else if tally.is_blocking(lost) {
            Some(AcquireVerdict::Failed(AcquireFailure::Contended))
        } else if tally.is_blocking(lost.union(tally.outbid)) {
            Some(self.outbid())
        } else {
            None
        }
    }

    /// Returns the verdict when a majority has our key.
    fn agreed(&self, now: Timestamp, is_accepted: bool) -> AcquireVerdict {
        if now >= self.until {
            AcquireVerdict::Failed(AcquireFailure::TooSlow)
        } else if is_accepted {
            AcquireVerdict::Acquired {
                valid_until: self.valid_until,
                fence: self.fence,
            }
        } else {
            self.outbid()
        }
    }

    fn outbid(&self) -> AcquireVerdict {
        AcquireVerdict::Outbid {
            counter: self.highest_counter.unwrap_or(FencingToken::MAX),
        }
    }
}

/// The end of an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcquireVerdict {
    /// A majority holds our key, and there is validity left.
    Acquired {
        /// The end of validity.
        valid_until: Timestamp,
        /// The fence that a majority accepted, if one was proposed.
        fence: Option<FencingToken>,
    },
    /// A majority holds our key, but no majority has accepted the fence. While the keys are ours, another
    /// round can [propose](Acquire::propose) a larger one.
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
