use super::{Round, Rules};
use crate::{AcquireFailure, FencingToken, Quorum, Timestamp, tally::Tally};

/// A further proposal for a fencing token, by a client whose keys are already on a majority.
///
/// The caller asks every node to raise its counter to the fence if its key has our token, and if the
/// counter is smaller. A majority of accepts makes the fence ours: two such majorities share a node,
/// on which the two clients' keys existed at different times, so the later accept there is strictly
/// larger.
pub(crate) type Fence = Round<FenceRules>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FenceRules {
    fence: FencingToken,
    valid_until: Timestamp,
}

impl Fence {
    /// Starts a proposal at `now`, by the holder of keys that are valid until `valid_until`.
    #[must_use]
    pub(crate) const fn new(
        quorum: Quorum,
        fence: FencingToken,
        valid_until: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self::with_rules(FenceRules { fence, valid_until }, quorum, now)
    }

    /// Returns the token that is proposed.
    #[must_use]
    pub(crate) const fn fence(&self) -> FencingToken {
        self.rules.fence
    }

    /// Returns the end of validity of the keys.
    #[must_use]
    pub(crate) const fn valid_until(&self) -> Timestamp {
        self.rules.valid_until
    }
}

impl Rules for FenceRules {
    type Verdict = FenceVerdict;

    fn judge(&self, tally: &Tally, now: Timestamp) -> Option<FenceVerdict> {
        if tally.is_quorum(tally.granted()) {
            return Some(if now < self.valid_until {
                FenceVerdict::Accepted
            } else {
                FenceVerdict::Failed(AcquireFailure::TooSlow)
            });
        }
        let held_up = tally.failed().union(tally.quarantined());
        let lost = held_up.union(tally.denied());
        if tally.is_blocking(held_up) {
            Some(FenceVerdict::Failed(AcquireFailure::NoQuorum))
        } else if tally.is_blocking(lost) {
            Some(FenceVerdict::Failed(AcquireFailure::Contended))
        } else if tally.is_blocking(lost.union(tally.outbid())) {
            let counter = tally.highest_counter().unwrap_or(FencingToken::MAX);
            Some(FenceVerdict::Outbid { counter })
        } else {
            None
        }
    }
}

/// The end of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum FenceVerdict {
    /// A majority accepted, while the keys were valid.
    Accepted,
    /// Counters are ahead. A larger proposal may win.
    Outbid {
        /// The largest counter that is known.
        counter: FencingToken,
    },
    /// No majority can accept: the keys or the nodes are gone.
    Failed(AcquireFailure),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        NodeId, Reply,
        said::{Said, quarantined},
    };

    use Reply::{Denied, Granted, Refused, Unknown};

    const VALID_UNTIL: Timestamp = Timestamp::from_nanos(100);
    const NOW: Timestamp = Timestamp::from_nanos(1);
    const COUNTER: FencingToken = FencingToken::new(40);
    const OUTBID: Reply = Reply::Outbid { counter: COUNTER };

    fn verdict<R: Into<Said> + Copy>(
        now: Timestamp,
        replies: &[R],
    ) -> Option<(FenceVerdict, usize)> {
        let quorum = Quorum::majority(5).unwrap();
        let mut round = Fence::new(quorum, FencingToken::new(7), VALID_UNTIL, NOW);
        replies.iter().enumerate().find_map(|(index, reply)| {
            let node = NodeId::new(index).unwrap();
            let Said { reply, eligibility } = (*reply).into();
            let verdict = round.handle_reply(now, node, reply, eligibility)?;
            Some((verdict, index + 1))
        })
    }

    #[test]
    fn accepted_by_a_majority_in_time() {
        let accepted = Some((FenceVerdict::Accepted, 3));
        assert_eq!(verdict(NOW, &[Granted; 5]), accepted);
        let too_slow = FenceVerdict::Failed(AcquireFailure::TooSlow);
        assert_eq!(verdict(VALID_UNTIL, &[Granted; 5]), Some((too_slow, 3)));
    }

    #[test]
    fn a_larger_proposal_may_win_while_the_keys_are_there() {
        let outbid = FenceVerdict::Outbid { counter: COUNTER };
        let replies = [OUTBID, Granted, OUTBID, Denied];
        assert_eq!(verdict(NOW, &replies), Some((outbid, 4)));
        assert_eq!(verdict(NOW, &[OUTBID, Granted, OUTBID]), None);
    }

    #[test]
    fn fails_with_its_keys_or_its_nodes() {
        let failed = |failure, after| Some((FenceVerdict::Failed(failure), after));
        let lost = [Denied, Granted, Denied, Denied];
        assert_eq!(verdict(NOW, &lost), failed(AcquireFailure::Contended, 4));
        let held_back = quarantined(Granted, VALID_UNTIL);
        let down = [Unknown.into(), Refused.into(), held_back];
        assert_eq!(verdict(NOW, &down), failed(AcquireFailure::NoQuorum, 3));
    }
}
