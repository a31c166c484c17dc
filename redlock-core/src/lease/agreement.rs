use super::RoundId;
use crate::{Eligibility, NodeId, NodeSet, Quorum, Reply, Tally, Timestamp};

/// The votes that a held lock rests on: those that won it or extended it last, and those that came
/// after the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Agreement {
    round: RoundId,
    start: Timestamp,
    quorum: Quorum,
    votes: NodeSet,
    /// The nodes that have not replied yet.
    awaited: NodeSet,
    /// When the latest of the votes was counted.
    counted_at: Timestamp,
}

impl Agreement {
    /// Notes what a round has come to at its verdict, which was reached at `now` by these votes.
    pub(super) fn new(round: RoundId, tally: &Tally, votes: NodeSet, now: Timestamp) -> Self {
        Self {
            round,
            start: tally.start(),
            quorum: tally.quorum(),
            votes,
            awaited: tally.undecided(),
            counted_at: tally.latest().max(now),
        }
    }

    /// Counts a reply that came after the verdict.
    pub(super) fn handle_reply(
        &mut self,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) {
        let is_first = self.round == round && self.awaited.remove(node);
        if is_first && reply == Reply::Granted && eligibility.covers(self.start) {
            self.votes.insert(node);
            self.counted_at = self.counted_at.max(now);
        }
    }

    /// Returns the nodes whose votes it has.
    pub(super) fn votes(&self) -> NodeSet {
        self.votes
    }

    /// Returns the nodes whose votes it does not have.
    pub(super) fn others(&self) -> NodeSet {
        self.quorum.all().difference(self.votes)
    }

    /// Takes a node's vote out, unless all were counted before `since`. Returns whether a quorum is left.
    ///
    /// One time is kept for all votes: if the latest of them is in doubt, so is each vote of the node.
    pub(super) fn withdraw(&mut self, node: NodeId, since: Timestamp) -> bool {
        let in_doubt = since <= self.counted_at && self.votes.remove(node);
        !in_doubt || self.votes.len() >= self.quorum.votes()
    }
}
