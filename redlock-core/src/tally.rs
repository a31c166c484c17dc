use crate::{FencingToken, NodeId, NodeSet, Quorum, Reply, Timestamp};

/// The replies to one round, at most one from each node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    quorum: Quorum,
    /// Nodes in quarantine until later than this have no vote.
    start: Timestamp,
    granted: NodeSet,
    quarantined: NodeSet,
    outbid: NodeSet,
    denied: NodeSet,
    refused: NodeSet,
    unknown: NodeSet,
    quarantined_until: Timestamp,
    highest_counter: Option<FencingToken>,
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
            refused: NodeSet::EMPTY,
            unknown: NodeSet::EMPTY,
            quarantined_until: Timestamp::ZERO,
            highest_counter: None,
        }
    }

    /// Counts a reply, unless the node has replied before or does not belong to the round.
    /// Returns whether it was counted.
    pub(crate) fn record(&mut self, node: NodeId, reply: Reply) -> bool {
        if !self.undecided().contains(node) {
            return false;
        }
        match reply {
            Reply::Granted => self.granted.insert(node),
            // The quarantine must be over when the round starts, not when the reply comes: the
            // node may have acted at any time in between.
            Reply::Quarantined { until } if until <= self.start => self.granted.insert(node),
            Reply::Quarantined { until } => {
                self.quarantined_until = self.quarantined_until.max(until);
                self.quarantined.insert(node)
            }
            Reply::Outbid { counter } => {
                self.highest_counter = self.highest_counter.max(Some(counter));
                self.outbid.insert(node)
            }
            Reply::Denied => self.denied.insert(node),
            Reply::Refused => self.refused.insert(node),
            // A look's answer is none to what is counted here.
            Reply::Unknown | Reply::Free | Reply::Taken { .. } => self.unknown.insert(node),
        }
    }

    /// Returns the quorum that the round needs.
    #[must_use]
    pub const fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns the nodes that did what was asked, and may vote.
    #[must_use]
    pub const fn granted(&self) -> NodeSet {
        self.granted
    }

    /// Returns the nodes that did what was asked, but have no vote yet.
    #[must_use]
    pub const fn quarantined(&self) -> NodeSet {
        self.quarantined
    }

    /// Returns when the last of the quarantined nodes may vote.
    #[must_use]
    pub const fn quarantined_until(&self) -> Timestamp {
        self.quarantined_until
    }

    /// Returns the nodes that hold our key, but whose fencing counter is ahead.
    #[must_use]
    pub const fn outbid(&self) -> NodeSet {
        self.outbid
    }

    /// Returns the largest fencing counter that a node has told.
    #[must_use]
    pub const fn highest_counter(&self) -> Option<FencingToken> {
        self.highest_counter
    }

    /// Returns the nodes where the key stood in the way.
    #[must_use]
    pub const fn denied(&self) -> NodeSet {
        self.denied
    }

    /// Returns the nodes that answered with an error or were never asked.
    #[must_use]
    pub const fn refused(&self) -> NodeSet {
        self.refused
    }

    /// Returns the nodes whose answer was lost: they may or may not have acted.
    #[must_use]
    pub const fn unknown(&self) -> NodeSet {
        self.unknown
    }

    /// Returns the nodes that have not replied yet.
    #[must_use]
    pub const fn undecided(&self) -> NodeSet {
        self.quorum
            .all()
            .difference(self.granted)
            .difference(self.quarantined)
            .difference(self.outbid)
            .difference(self.denied)
            .difference(self.refused)
            .difference(self.unknown)
    }

    /// Returns whether `yes` is a quorum.
    pub(crate) const fn is_quorum(&self, yes: NodeSet) -> bool {
        yes.len() >= self.quorum.votes()
    }

    /// Returns whether the nodes in `no` are so many that the others cannot be a quorum.
    pub(crate) const fn is_blocking(&self, no: NodeSet) -> bool {
        no.len() > self.quorum.tolerated_failures()
    }

    /// Returns the nodes that failed of themselves, whatever the key says.
    pub(crate) const fn failed(&self) -> NodeSet {
        self.refused.union(self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: usize) -> NodeId {
        NodeId::new(index).unwrap()
    }

    fn tally(nodes: usize) -> Tally {
        let start = Timestamp::from_nanos(100);
        Tally::new(Quorum::majority(nodes).unwrap(), start)
    }

    #[test]
    fn each_node_counts_once_and_first() {
        let mut tally = tally(3);
        assert!(tally.record(node(0), Reply::Unknown));
        assert!(!tally.record(node(0), Reply::Granted));
        assert!(!tally.record(node(3), Reply::Granted), "not a member");
        assert_eq!(tally.unknown().len(), 1);
        assert!(tally.granted().is_empty());
        assert_eq!(tally.undecided().len(), 2);
    }

    #[test]
    fn replies_are_kept_apart() {
        let mut tally = tally(6);
        let counter = FencingToken::new(9);
        let until = Timestamp::from_nanos(101);
        let replies = [
            Reply::Granted,
            Reply::Denied,
            Reply::Refused,
            Reply::Unknown,
            Reply::Outbid { counter },
            Reply::Quarantined { until },
        ];
        for (index, reply) in replies.into_iter().enumerate() {
            assert!(tally.record(node(index), reply));
        }
        let sets = [
            tally.granted(),
            tally.denied(),
            tally.refused(),
            tally.unknown(),
            tally.outbid(),
            tally.quarantined(),
        ];
        for (index, set) in sets.into_iter().enumerate() {
            assert!(set.contains(node(index)) && set.len() == 1, "{index}");
        }
        assert_eq!(tally.failed().len(), 2);
        assert_eq!(tally.highest_counter(), Some(counter));
        assert_eq!(tally.quarantined_until(), until);
        assert!(tally.undecided().is_empty());
    }

    #[test]
    fn a_quarantine_that_ended_before_the_start_does_not_matter() {
        let mut tally = tally(3);
        for (index, until) in [99, 100, 101].into_iter().enumerate() {
            let until = Timestamp::from_nanos(until);
            tally.record(node(index), Reply::Quarantined { until });
        }
        assert_eq!(tally.granted(), NodeSet::first(2));
        assert_eq!(tally.quarantined().len(), 1);
    }

    #[test]
    fn quorum_and_blocking_minority() {
        // Of 4 nodes 3 decide, so 2 block.
        let tally = tally(4);
        assert!(tally.is_quorum(NodeSet::first(3)) && !tally.is_quorum(NodeSet::first(2)));
        assert!(tally.is_blocking(NodeSet::first(2)) && !tally.is_blocking(NodeSet::first(1)));
    }
}
