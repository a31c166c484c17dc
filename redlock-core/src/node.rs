use core::fmt;

/// The position of a master in the caller's list of nodes, counted from zero.
///
/// ```
/// use redlock_core::NodeId;
///
/// let third = NodeId::new(2).expect("below 64");
/// assert_eq!(third.index(), 2);
/// assert_eq!(NodeId::new(64), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// Creates the id of the node at `index`, or `None` if `index` is 64 or more.
    #[must_use]
    pub const fn new(index: usize) -> Option<Self> {
        if index < NodeSet::CAPACITY {
            // Below 64, so it fits.
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// Returns the position in the list of nodes.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A set of up to 64 nodes, one bit each.
///
/// ```
/// use redlock_core::{NodeId, NodeSet, Quorum};
///
/// let all = Quorum::majority(5)?.all();
/// let silent: NodeSet = [1, 3].into_iter().filter_map(NodeId::new).collect();
/// assert_eq!(all.difference(silent).len(), 3);
/// assert_eq!(format!("{silent:?}"), "{1, 3}");
/// # Ok::<(), redlock_core::QuorumError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// How many nodes a set can hold.
    pub(crate) const CAPACITY: usize = 64;

    /// The set without nodes.
    pub const EMPTY: Self = Self(0);

    /// Creates the set of the first `count` nodes, or of all 64 if `count` is larger.
    pub(crate) const fn first(count: usize) -> Self {
        if count < Self::CAPACITY {
            Self((1 << count) - 1)
        } else {
            Self(u64::MAX)
        }
    }

    /// Adds a node. Returns whether the node was absent.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let before = self.0;
        self.0 |= 1 << node.0;
        self.0 != before
    }

    /// Removes a node. Returns whether the node was in the set.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let before = self.0;
        self.0 &= !(1 << node.0);
        self.0 != before
    }

    /// Returns whether the node is in the set.
    #[must_use]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Returns the number of nodes in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set has no nodes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the nodes that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the nodes of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let index = rest.trailing_zeros() as u8;
            rest &= rest.checked_sub(1)?;
            Some(NodeId(index))
        })
    }
}

impl From<NodeId> for NodeSet {
    /// Creates the set of one node.
    fn from(node: NodeId) -> Self {
        Self(1 << node.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|node| node.0))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn ids_end_where_sets_do() {
        assert_eq!(NodeId::new(63).map(NodeId::index), Some(63));
        assert_eq!(NodeId::new(64), None);
        assert_eq!(NodeSet::first(usize::MAX), NodeSet::first(64));
        assert_eq!(format!("{:?}", NodeSet::first(2)), "{0, 1}");
    }
}
