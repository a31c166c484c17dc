use super::{Round, Rules};
use crate::{Eligibility, NodeId, Quorum, Reply, Timestamp, tally::Tally};

/// One attempt to delete our key on every node, whether or not the node ever had it (Redlock
/// step 5).
///
/// The caller sends a compare-and-delete to every node at once, so that only our own token can be
/// deleted.
pub(crate) type Release = Round<ReleaseRules>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReleaseRules;

impl Release {
    /// Starts the release of a token.
    pub(crate) const fn new(quorum: Quorum) -> Self {
        Self::with_rules(ReleaseRules, quorum, Timestamp::ZERO)
    }

    /// Counts a node's reply. Neither its time nor a quarantine matters: nothing is won by a release.
    pub(crate) fn confirm(&mut self, node: NodeId, reply: Reply) -> Option<ReleaseVerdict> {
        self.handle_reply(Timestamp::ZERO, node, reply, Eligibility::ALWAYS)
    }

    /// Ends the release without waiting for the nodes that have not replied. Returns the verdict
    /// unless it was returned before.
    pub(crate) fn give_up(&mut self) -> Option<ReleaseVerdict> {
        self.end_with(ReleaseVerdict::Unconfirmed)
    }
}

impl Rules for ReleaseRules {
    type Verdict = ReleaseVerdict;

    fn judge(&self, tally: &Tally, _: Timestamp) -> Option<ReleaseVerdict> {
        if tally.is_quorum(tally.granted) {
            Some(ReleaseVerdict::Released)
        } else if tally.is_blocking(tally.failed) {
            Some(ReleaseVerdict::Unconfirmed)
        } else if tally.is_blocking(tally.denied) {
            Some(ReleaseVerdict::NotHeld)
        } else {
            // All nodes have replied, and neither failures nor losses block. Then the nodes that deleted our
            // key or never had it are a quorum together.
            let has_all = tally.undecided().is_empty();
            has_all.then_some(ReleaseVerdict::Released)
        }
    }
}

/// The end of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseVerdict {
    /// The key is gone from a majority of nodes: another client can acquire the lock now.
    Released,
    /// Our key was missing on too many nodes: the lock had been lost before it was released.
    NotHeld,
    /// Too many nodes did not answer. Their keys go when the owed release reaches them, or when
    /// their ttl ends.
    Unconfirmed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said::node;

    #[test]
    fn failing_nodes_leave_it_unconfirmed() {
        let mut round = Release::new(Quorum::majority(3).unwrap());
        assert_eq!(round.confirm(node(0), Reply::Unknown), None);
        let verdict = round.confirm(node(1), Reply::Refused);
        assert_eq!(verdict, Some(ReleaseVerdict::Unconfirmed));
    }
}
