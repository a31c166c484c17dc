use core::{error::Error, fmt};

use crate::NodeSet;

/// The number of nodes, and the number of votes that make a decision: `N/2 + 1` of `N`.
///
/// Any two quorums share at least one node, and a node grants a key to one token at a time. Mutual
/// exclusion rests on this alone (Redlock step 3).
///
/// ```
/// use redlock_core::{Quorum, QuorumError};
///
/// let quorum = Quorum::majority(5)?;
/// assert_eq!(quorum.votes(), 3);
/// assert_eq!(quorum.tolerated_failures(), 2);
/// assert!(Quorum::majority(0).is_err());
/// # Ok::<(), QuorumError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: u8,
    votes: u8,
}

impl Quorum {
    /// Creates the majority quorum of `nodes` nodes.
    ///
    /// # Errors
    ///
    /// Refuses zero nodes, and more than 64.
    pub const fn majority(nodes: usize) -> Result<Self, QuorumError> {
        match nodes {
            // The range fits into u8.
            1..=NodeSet::CAPACITY => Ok(Self {
                nodes: nodes as u8,
                votes: (nodes / 2 + 1) as u8,
            }),
            _ => Err(QuorumError { nodes }),
        }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(self) -> usize {
        self.nodes as usize
    }

    /// Returns the number of votes that decide.
    #[must_use]
    pub const fn votes(self) -> usize {
        self.votes as usize
    }

    /// Returns how many nodes may fail without preventing a decision.
    #[must_use]
    pub const fn tolerated_failures(self) -> usize {
        (self.nodes - self.votes) as usize
    }

    /// Returns all nodes.
    #[must_use]
    pub const fn all(self) -> NodeSet {
        NodeSet::first(self.nodes())
    }
}

/// Why a list of nodes has no quorum: it is empty, or longer than 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuorumError {
    nodes: usize,
}

impl fmt::Display for QuorumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = NodeSet::CAPACITY;
        match self.nodes {
            0 => f.write_str("no nodes given: a lock needs at least one"),
            nodes => write!(f, "{nodes} nodes given: at most {most} are supported"),
        }
    }
}

impl Error for QuorumError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_quorums_always_share_a_node() {
        for nodes in 1..=64 {
            let quorum = Quorum::majority(nodes).unwrap();
            assert!(2 * quorum.votes() > nodes);
            assert!(2 * (quorum.votes() - 1) <= nodes, "no more than needed");
            assert_eq!(quorum.tolerated_failures() + quorum.votes(), nodes);
            assert_eq!(quorum.all().len(), nodes);
        }
    }

    #[test]
    fn refuses_lists_without_a_quorum() {
        for nodes in [0, 65] {
            assert_eq!(Quorum::majority(nodes), Err(QuorumError { nodes }));
        }
    }
}
