use crate::{Eligibility, NodeId, NodeSet, Quorum, Reply, Timestamp};

/// The replies to one round, at most one from each node.
///
/// It counts replies even after the verdict of the round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tally {
    pub(crate) quorum: Quorum,
    /// When the round started. A node has a vote if its eligibility covers this.
    pub(crate) start: Timestamp,
    /// The nodes that did what was asked, and have a vote.
    pub(crate) granted: NodeSet,
    /// The nodes that did what was asked, or hold our key, but have no vote.
    pub(crate) quarantined: NodeSet,
    /// The nodes that hold our key, but whose fencing counter is not smaller than the proposal.
    pub(crate) outbid: NodeSet,
    /// The nodes that have another token's key, or do not have ours.
    pub(crate) denied: NodeSet,
    /// The nodes that failed, whatever is in their key.
    pub(crate) failed: NodeSet,
    /// The latest time that came with a vote. Times may come out of order, since a driver may
    /// read the clock before it waits for access to the lease.
    pub(crate) latest_vote: Timestamp,
}

impl Tally {
    /// Creates the tally of a round that starts at `start`.
    pub(crate) const fn new(quorum: Quorum, start: Timestamp) -> Self {
        Self {
            quorum,
            start,
            granted: NodeSet::EMPTY,
            quarantined: NodeSet::EMPTY,
            outbid: NodeSet::EMPTY,
            denied: NodeSet::EMPTY,
            failed: NodeSet::EMPTY,
            latest_vote: Timestamp::ZERO,
        }
    }

    /// Counts a reply that came at `now`, unless the node has replied before or does not belong to the
    /// round. Returns whether the reply was counted.
    ///
    /// A node that is not eligible agrees to nothing: neither its grant counts, nor a counter that is
    /// ahead, by which it says that it holds our key. Its denial counts.
    pub(crate) fn record(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> bool {
        if !self.undecided().contains(node) {
            return false;
        }
        let nodes = match reply {
            Reply::Granted | Reply::Outbid { .. } if !eligibility.covers(self.start) => {
                &mut self.quarantined
            }
            Reply::Granted | Reply::Outbid { .. } => {
                self.latest_vote = self.latest_vote.max(now);
                if reply == Reply::Granted {
                    &mut self.granted
                } else {
                    &mut self.outbid
                }
            }
            Reply::Denied => &mut self.denied,
            // An answer to a probe answers nothing that is counted here.
            Reply::Refused
            | Reply::Unknown
            | Reply::Free
            | Reply::Taken { .. }
            | Reply::Marked { .. }
            | Reply::Slots { .. } => &mut self.failed,
        };
        nodes.insert(node)
    }

    /// Takes back a node's vote, because another server may have given it. Returns whether there was one.
    pub(crate) fn withdraw(&mut self, node: NodeId) -> bool {
        let had_voted = self.granted.remove(node) | self.outbid.remove(node);
        had_voted && self.quarantined.insert(node)
    }

    /// Forgets why nodes did not agree, unless they denied: nobody asks after the verdict.
    pub(crate) fn forget_reasons(&mut self) {
        let others = self.quarantined.union(self.outbid);
        self.failed = self.failed.union(others);
        (self.quarantined, self.outbid) = (NodeSet::EMPTY, NodeSet::EMPTY);
    }

    /// Returns the tally with nothing but denials: no vote counts in a round that has failed.
    pub(crate) fn without_votes(&self) -> Self {
        let replied = self.quorum.all().difference(self.undecided());
        Self {
            denied: self.denied,
            failed: replied.difference(self.denied),
            ..Self::new(self.quorum, Timestamp::ZERO)
        }
    }

    /// Returns the nodes that have not replied yet.
    pub(crate) const fn undecided(&self) -> NodeSet {
        self.quorum
            .all()
            .difference(self.granted)
            .difference(self.quarantined)
            .difference(self.outbid)
            .difference(self.denied)
            .difference(self.failed)
    }

    /// Returns whether `yes` is a quorum.
    pub(crate) const fn is_quorum(&self, yes: NodeSet) -> bool {
        yes.len() >= self.quorum.votes()
    }

    /// Returns whether too many nodes are in `no` for the others to be a quorum.
    pub(crate) const fn is_blocking(&self, no: NodeSet) -> bool {
        no.len() > self.quorum.tolerated_failures()
    }
}
