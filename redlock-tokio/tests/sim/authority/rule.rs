//! The kinds of authorities, and the rules that clients keep.

/// What names the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sentinels of this many groups.
    Sentinels { groups: usize },
    /// The nodes of a cluster.
    Cluster,
}

/// A rule that keeps two owners from voting for two locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An owner votes when every lock by an earlier one is over.
    Settling,
    /// A confirmation counts for a window.
    Window,
    /// The majority is of all members, and not of those that answer.
    AllMembers,
    /// One member is not enough.
    Majority,
    /// A group has at least as many sentinels as are listed.
    FewestMembers,
    /// The members of a cluster are all its nodes, with the replicas.
    Replicas,
    /// The age that a member tells is that of the tenure.
    Ages,
    /// A marker tells the age of the tenure.
    Markers,
    /// The history of a server shows that it was promoted.
    Histories,
}
