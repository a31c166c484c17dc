use core::fmt;

use crate::{
    Eligibility, FencingToken, NodeId, Quorum, Reply, Tally, Timestamp, Token, Validity,
    ballot::Ballot,
};

/// One attempt to set our key on a majority of nodes (Redlock steps 1 to 3).
///
/// The caller sends `SET key token NX PX ttl` to every node at once and hands each answer to
/// [`Acquire::handle_reply`]. A repeated reply changes nothing, and neither does a reply from a node that
/// does not belong to the round.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::*;
///
/// let validity = Validity::new(Ttl::new(Duration::from_secs(10))?, Drift::default())?;
/// let start = Timestamp::ZERO;
/// let token = Nonce::new(0x5eed).token(1);
/// let mut round = Acquire::new(Quorum::majority(3)?, validity, token, None, start);
///
/// let [first, second] = [0, 1].map(|index| NodeId::new(index).unwrap());
/// let mut grant = |node| round.handle_reply(start, node, Reply::Granted, Eligibility::ALWAYS);
/// assert_eq!(grant(first), None);
/// assert!(matches!(grant(second), Some(AcquireVerdict::Acquired { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    token: Token,
    fence: Option<FencingToken>,
    start: Timestamp,
    valid_until: Timestamp,
    ballot: Ballot<AcquireVerdict>,
}

impl Acquire {
    /// Starts an attempt at `now`, which must be read *before* the first request leaves
    /// (Redlock step 1). With `fence`, the nodes are asked to raise their counters to it as well.
    #[must_use]
    pub fn new(
        quorum: Quorum,
        validity: Validity,
        token: Token,
        fence: Option<FencingToken>,
        now: Timestamp,
    ) -> Self {
        Self {
            token,
            fence,
            start: now,
            valid_until: validity.until(now),
            ballot: Ballot::new(quorum, now),
        }
    }

    /// Counts a node's reply, by what the node's votes are worth. Returns the verdict once, with the
    /// reply that makes it certain.
    pub fn handle_reply(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> Option<AcquireVerdict> {
        let (fence, valid_until) = (self.fence, self.valid_until);
        self.ballot
            .handle_reply(now, node, reply, eligibility, |tally| {
                judge(tally, now, fence, valid_until)
            })
    }

    /// Takes back a node's vote in this round, if it gave one. Returns the verdict if that makes it
    /// certain.
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        node: NodeId,
        eligibility: Eligibility,
    ) -> Option<AcquireVerdict> {
        let (fence, valid_until) = (self.fence, self.valid_until);
        self.ballot.withdraw(node, eligibility, |tally| {
            judge(tally, now, fence, valid_until)
        })
    }

    /// Ends the attempt without waiting for the nodes that have not replied. Returns the verdict
    /// unless it was returned before.
    ///
    /// `suspicion` is the failure of the attempt before this one, if there was one. The same reason
    /// probably stands in the way of this attempt, unless a node says otherwise.
    pub fn give_up(
        &mut self,
        now: Timestamp,
        suspicion: Option<AcquireFailure>,
    ) -> Option<AcquireVerdict> {
        let is_late = now >= self.valid_until;
        self.ballot.give_up(|tally| {
            AcquireVerdict::Failed(if is_late {
                AcquireFailure::TooSlow
            } else if !tally.denied().is_empty() {
                AcquireFailure::Contended
            } else {
                suspicion.unwrap_or(AcquireFailure::NoQuorum)
            })
        })
    }

    /// Returns the token of this attempt.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Returns when the attempt started.
    #[must_use]
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// Returns the end of validity, if the attempt succeeds. Nothing can be won from then on.
    #[must_use]
    pub const fn valid_until(&self) -> Timestamp {
        self.valid_until
    }

    /// Returns the replies so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        self.ballot.tally()
    }
}

fn judge(
    tally: &Tally,
    now: Timestamp,
    fence: Option<FencingToken>,
    valid_until: Timestamp,
) -> Option<AcquireVerdict> {
    let ours = tally.granted().union(tally.outbid());
    // Redlock step 3: a majority of *all* nodes, and validity time left.
    if tally.is_quorum(ours) {
        return Some(if now >= valid_until {
            AcquireVerdict::Failed(AcquireFailure::TooSlow)
        } else if fence.is_none() || tally.is_quorum(tally.granted()) {
            AcquireVerdict::Acquired { valid_until, fence }
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
        let until = tally.quarantined_until();
        Some(AcquireVerdict::Failed(AcquireFailure::Quarantined {
            until,
        }))
    } else if tally.is_blocking(held_up.union(tally.denied())) {
        Some(AcquireVerdict::Failed(AcquireFailure::Contended))
    } else {
        None
    }
}

/// The end of an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireVerdict {
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
    /// So many nodes failed that the others are no majority.
    NoQuorum,
    /// Nodes that were needed came up so recently that they have no vote.
    Quarantined {
        /// When the last of them has one.
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
mod tests {
    use super::*;
    use crate::{
        Drift, Nonce, Ttl,
        said::{Said, quarantined},
    };
    use core::time::Duration;

    use Reply::{Denied, Granted, Refused, Unknown};

    fn round(nodes: usize) -> Acquire {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let validity = Validity::new(ttl, Drift::default()).unwrap();
        let quorum = Quorum::majority(nodes).unwrap();
        Acquire::new(
            quorum,
            validity,
            Nonce::new(1).token(1),
            None,
            Timestamp::ZERO,
        )
    }

    /// Feeds the replies of nodes 0, 1, 2 ... at one time; returns the verdict and after how many
    /// replies it came.
    fn verdict<R: Into<Said> + Copy>(
        round: &mut Acquire,
        now: Timestamp,
        replies: &[R],
    ) -> (AcquireVerdict, usize) {
        for (index, reply) in replies.iter().enumerate() {
            let node = NodeId::new(index).unwrap();
            let Said { reply, eligibility } = (*reply).into();
            if let Some(verdict) = round.handle_reply(now, node, reply, eligibility) {
                return (verdict, index + 1);
            }
        }
        panic!("no verdict after {} replies", replies.len());
    }

    fn failure<R: Into<Said> + Copy>(replies: &[R]) -> (AcquireFailure, usize) {
        match verdict(&mut round(5), Timestamp::ZERO, replies) {
            (AcquireVerdict::Failed(failure), after) => (failure, after),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn acquired_at_the_quorum_not_at_the_last_reply() {
        let (verdict, after) = verdict(&mut round(5), Timestamp::ZERO, &[Granted; 5]);
        assert_eq!(after, 3);
        let valid_until = round(5).valid_until();
        let fence = None;
        assert_eq!(verdict, AcquireVerdict::Acquired { valid_until, fence });
    }

    #[test]
    fn a_foreign_key_on_a_minority_does_not_prevent_it() {
        let replies = [Denied, Denied, Granted, Granted, Granted];
        let (verdict, _) = verdict(&mut round(5), Timestamp::ZERO, &replies);
        assert!(matches!(verdict, AcquireVerdict::Acquired { .. }));
    }

    #[test]
    fn fails_as_soon_as_a_quorum_is_impossible() {
        assert_eq!(failure(&[Denied; 5]), (AcquireFailure::Contended, 3));
        assert_eq!(failure(&[Refused; 5]), (AcquireFailure::NoQuorum, 3));
        assert_eq!(failure(&[Unknown; 5]), (AcquireFailure::NoQuorum, 3));
    }

    #[test]
    fn names_what_stood_in_the_way() {
        // The two failed nodes are a minority: it is the foreign key that tips the scales.
        let contended = [Unknown, Refused, Granted, Granted, Denied];
        assert_eq!(failure(&contended), (AcquireFailure::Contended, 5));
        let no_quorum = [Denied, Unknown, Refused, Denied, Granted];
        assert_eq!(failure(&no_quorum).0, AcquireFailure::Contended);
        let down = [Granted, Unknown, Refused, Unknown, Granted];
        assert_eq!(failure(&down), (AcquireFailure::NoQuorum, 4));
    }

    #[test]
    fn a_quorum_at_the_end_of_validity_is_too_slow() {
        let end = round(5).valid_until();
        let just_before = Timestamp::from_nanos(end.as_nanos() - 1);
        let (in_time, _) = verdict(&mut round(5), just_before, &[Granted; 3]);
        assert!(matches!(in_time, AcquireVerdict::Acquired { .. }));
        let (late, _) = verdict(&mut round(5), end, &[Granted; 3]);
        assert_eq!(late, AcquireVerdict::Failed(AcquireFailure::TooSlow));
    }

    #[test]
    fn the_verdict_is_given_once() {
        let mut round = round(3);
        verdict(&mut round, Timestamp::ZERO, &[Granted, Granted]);
        let last = NodeId::new(2).unwrap();
        let always = Eligibility::ALWAYS;
        let late = round.handle_reply(Timestamp::ZERO, last, Granted, always);
        assert_eq!(late, None);
        assert_eq!(round.tally().granted().len(), 3, "a late vote is recorded");
        let repeated = round.handle_reply(Timestamp::ZERO, last, Denied, always);
        assert_eq!(repeated, None);
        assert_eq!(round.give_up(Timestamp::ZERO, None), None);
    }

    #[test]
    fn giving_up_says_what_is_known_or_suspected() {
        let first = NodeId::new(0).unwrap();
        let give_up = |reply: Option<Reply>, now, suspicion| {
            let mut round = round(5);
            if let Some(reply) = reply {
                round.handle_reply(now, first, reply, Eligibility::ALWAYS);
            }
            round.give_up(now, suspicion)
        };
        let failed = |failure| Some(AcquireVerdict::Failed(failure));
        let contended = Some(AcquireFailure::Contended);
        let (now, late) = (Timestamp::ZERO, Timestamp::MAX);
        assert_eq!(give_up(None, now, None), failed(AcquireFailure::NoQuorum));
        assert_eq!(
            give_up(None, now, contended),
            failed(AcquireFailure::Contended)
        );
        assert_eq!(
            give_up(Some(Denied), now, None),
            failed(AcquireFailure::Contended)
        );
        assert_eq!(
            give_up(None, late, contended),
            failed(AcquireFailure::TooSlow)
        );
    }

    #[test]
    fn nodes_in_quarantine_have_no_vote() {
        let until = Timestamp::from_nanos(9);
        let held_back = quarantined(Granted, until);
        let [granted, refused, denied] = [Granted, Refused, Denied].map(Said::from);
        let replies = [held_back, granted, held_back, granted, held_back];
        let expected = AcquireFailure::Quarantined { until };
        assert_eq!(failure(&replies), (expected, 5));
        let (verdict, _) = verdict(
            &mut round(5),
            Timestamp::ZERO,
            &[held_back, granted, held_back, granted, granted],
        );
        assert!(matches!(verdict, AcquireVerdict::Acquired { .. }));
        // One failed, one in quarantine, one foreign: it is the foreign key that tips the scales.
        let contended = [refused, held_back, denied];
        assert_eq!(failure(&contended), (AcquireFailure::Contended, 3));
    }

    #[test]
    fn a_counter_of_a_node_in_quarantine_is_no_agreement() {
        let until = Timestamp::from_nanos(9);
        let counter = FencingToken::new(40);
        let held_back = quarantined(Reply::Outbid { counter }, until);
        let mut round = round(3);
        round.fence = Some(FencingToken::new(7));
        let (verdict, _) = verdict(
            &mut round,
            Timestamp::ZERO,
            &[Granted.into(), held_back, held_back],
        );
        let failure = AcquireFailure::Quarantined { until };
        assert_eq!(verdict, AcquireVerdict::Failed(failure));
    }

    #[test]
    fn what_is_withdrawn_may_decide_the_round() {
        let until = Timestamp::from_nanos(9);
        let doubted = Eligibility::since(until);
        let node = |index| NodeId::new(index).unwrap();
        let mut round = round(3);
        let (now, always) = (Timestamp::ZERO, Eligibility::ALWAYS);
        round.handle_reply(now, node(0), Granted, always);
        assert_eq!(round.withdraw(now, node(1), doubted), None, "no vote yet");
        assert_eq!(round.withdraw(now, node(0), doubted), None, "1 of 3");
        let failure = AcquireFailure::Quarantined { until };
        assert_eq!(
            round.handle_reply(now, node(1), Granted, doubted),
            Some(AcquireVerdict::Failed(failure))
        );
        assert_eq!(round.withdraw(now, node(1), doubted), None, "once");
    }

    fn fenced(replies: &[Reply]) -> (AcquireVerdict, usize) {
        let mut round = round(5);
        round.fence = Some(FencingToken::new(7));
        verdict(&mut round, Timestamp::ZERO, replies)
    }

    #[test]
    fn a_fence_needs_a_majority_of_its_own() {
        let counter = FencingToken::new(40);
        let outbid = Reply::Outbid { counter };
        let fence = Some(FencingToken::new(7));
        let valid_until = round(5).valid_until();
        let acquired = AcquireVerdict::Acquired { valid_until, fence };
        assert_eq!(fenced(&[Granted; 3]), (acquired, 3));
        assert_eq!(
            fenced(&[Denied, Granted, Granted, Denied, Granted]),
            (acquired, 5)
        );
        let second_round = AcquireVerdict::Outbid { counter };
        assert_eq!(fenced(&[Granted, outbid, Granted]), (second_round, 3));
        assert_eq!(fenced(&[outbid, Denied, outbid, outbid]), (second_round, 4));
    }

    #[test]
    fn without_a_fence_a_counter_does_not_matter() {
        let counter = FencingToken::new(40);
        let (verdict, _) = verdict(
            &mut round(3),
            Timestamp::ZERO,
            &[Reply::Outbid { counter }; 2],
        );
        assert!(matches!(
            verdict,
            AcquireVerdict::Acquired { fence: None, .. }
        ));
    }

    #[test]
    fn one_node_is_its_own_quorum() {
        assert_eq!(verdict(&mut round(1), Timestamp::ZERO, &[Granted]).1, 1);
        assert_eq!(
            verdict(&mut round(1), Timestamp::ZERO, &[Denied]).0,
            AcquireVerdict::Failed(AcquireFailure::Contended)
        );
    }
}
