use crate::{NodeId, NodeSet, Quorum, Reply};

/// The replies to one round, at most one from each node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    quorum: Quorum,
    granted: NodeSet,
    denied: NodeSet,
    refused: NodeSet,
    unknown: NodeSet,
}

impl Tally {
    pub(crate) const fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            granted: NodeSet::EMPTY,
            denied: NodeSet::EMPTY,
            refused: NodeSet::EMPTY,
            unknown: NodeSet::EMPTY,
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
            Reply::Denied => self.denied.insert(node),
            Reply::Refused => self.refused.insert(node),
            Reply::Unknown => self.unknown.insert(node),
        }
    }

    /// Returns the quorum that the round needs.
    #[must_use]
    pub const fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns the nodes that did what was asked.
    #[must_use]
    pub const fn granted(&self) -> NodeSet {
        self.granted
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

    #[test]
    fn each_node_counts_once_and_first() {
        let mut tally = Tally::new(Quorum::majority(3).unwrap());
        assert!(tally.record(node(0), Reply::Unknown));
        assert!(!tally.record(node(0), Reply::Granted));
        assert!(!tally.record(node(3), Reply::Granted), "not a member");
        assert_eq!(tally.unknown().len(), 1);
        assert!(tally.granted().is_empty());
        assert_eq!(tally.undecided().len(), 2);
    }

    #[test]
    fn replies_are_kept_apart() {
        let mut tally = Tally::new(Quorum::majority(4).unwrap());
        let replies = [
            Reply::Granted,
            Reply::Denied,
            Reply::Refused,
            Reply::Unknown,
        ];
        for (index, reply) in replies.into_iter().enumerate() {
            assert!(tally.record(node(index), reply));
        }
        assert!(tally.granted().contains(node(0)));
        assert!(tally.denied().contains(node(1)));
        assert!(tally.refused().contains(node(2)));
        assert!(tally.unknown().contains(node(3)));
        assert_eq!(tally.failed().len(), 2);
        assert!(tally.undecided().is_empty());
    }

    #[test]
    fn quorum_and_blocking_minority() {
        // Of 4 nodes 3 decide, so 2 block.
        let tally = Tally::new(Quorum::majority(4).unwrap());
        assert!(tally.is_quorum(NodeSet::first(3)) && !tally.is_quorum(NodeSet::first(2)));
        assert!(tally.is_blocking(NodeSet::first(2)) && !tally.is_blocking(NodeSet::first(1)));
    }
}
