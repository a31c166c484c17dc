use super::RoundId;
use crate::{Eligibility, NodeId, NodeSet, Quorum, Reply, Timestamp, tally::Tally};

/// The votes that a held lock rests on: the votes that won or extended it last, and the votes that came
/// after the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Agreement {
    round: RoundId,
    start: Timestamp,
    quorum: Quorum,
    votes: NodeSet,
    /// The nodes that said no: they do not have our key.
    denied: NodeSet,
    /// The nodes that have not replied yet.
    awaited: NodeSet,
    /// When the latest of the votes was counted.
    counted_at: Timestamp,
}

impl Agreement {
    /// Notes the votes of a round, whose verdict came at `now`.
    pub(super) fn new(round: RoundId, tally: &Tally, votes: NodeSet, now: Timestamp) -> Self {
        Self {
            round,
            start: tally.start,
            quorum: tally.quorum,
            votes,
            denied: tally.denied,
            awaited: tally.undecided(),
            counted_at: tally.latest.max(now),
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
        match reply {
            Reply::Granted if is_first && eligibility.covers(self.start) => {
                self.votes.insert(node);
                self.counted_at = self.counted_at.max(now);
            }
            Reply::Denied if is_first => {
                self.denied.insert(node);
            }
            _ => {}
        }
    }

    /// Returns the nodes whose votes are counted.
    pub(super) fn votes(&self) -> NodeSet {
        self.votes
    }

    /// Returns the nodes whose votes are not counted.
    pub(super) fn others(&self) -> NodeSet {
        self.quorum.all().difference(self.votes)
    }

    /// Returns the nodes that do not have our key.
    pub(super) fn denied(&self) -> NodeSet {
        self.denied
    }

    /// Removes a node's vote, unless all votes were counted before `since`. Returns whether a quorum is
    /// left.
    ///
    /// One time is kept for all votes. If the latest of them is in doubt, the vote of the node is.
    pub(super) fn withdraw(&mut self, node: NodeId, since: Timestamp) -> bool {
        let in_doubt = since <= self.counted_at && self.votes.remove(node);
        !in_doubt || self.votes.len() >= self.quorum.votes()
    }
}
