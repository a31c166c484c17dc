use std::{fmt, sync::Arc, time::Duration};

use redlock_core::Quorum;

use crate::{
    NodeError, NodeReport, NodeReports, Objection, ServerInfo, whole_seconds::WholeSeconds,
};

/// How a node is, for people and dashboards. See [`Redlock::nodes`](crate::Redlock::nodes).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address, without credentials.
    pub address: Arc<str>,
    /// What it can do for a lock.
    pub state: NodeState,
    /// What the server said of itself when it was last connected to.
    pub server: Option<ServerInfo>,
    /// How long it took to answer last, its share of waiting behind other requests included.
    pub round_trip: Option<Duration>,
}

/// What a node can do for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It votes.
    Voting,
    /// It came up too recently to vote: it may have forgotten a lock that is still held.
    Quarantined {
        /// For how much longer.
        remaining: Duration,
    },
    /// It has stopped answering. It is asked again when it answers what it was sent, or on another
    /// connection.
    Silent,
    /// There is no connection, and another attempt is made again and again.
    Reconnecting(NodeError),
    /// It answers, but must not vote until somebody changes something.
    Refused(NodeError),
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voting => f.write_str("voting"),
            Self::Quarantined { remaining } => {
                write!(
                    f,
                    "came up too recently to vote, for {} more",
                    WholeSeconds(*remaining)
                )
            }
            Self::Silent => f.write_str("silent"),
            Self::Reconnecting(error) | Self::Refused(error) => error.fmt(f),
        }
    }
}

/// Returns in how long so many nodes may vote: at once, after their quarantine, or nobody knows when.
pub(crate) fn quorum_in(nodes: &[NodeStatus], quorum: Quorum) -> Option<Duration> {
    let mut waits: Vec<_> = nodes
        .iter()
        .filter_map(|node| match node.state {
            NodeState::Voting => Some(Duration::ZERO),
            NodeState::Quarantined { remaining } => Some(remaining),
            NodeState::Silent | NodeState::Reconnecting(_) | NodeState::Refused(_) => None,
        })
        .collect();
    waits.sort_unstable();
    waits.get(quorum.votes() - 1).copied()
}

/// Returns the nodes that have no vote now, and why.
pub(crate) fn objections(nodes: Vec<NodeStatus>) -> NodeReports {
    let report = |node: NodeStatus| {
        let objection = match node.state {
            NodeState::Voting => return None,
            NodeState::Quarantined { remaining } => Objection::Quarantined { remaining },
            NodeState::Silent => Objection::Failed(NodeError::Silent),
            NodeState::Reconnecting(error) | NodeState::Refused(error) => Objection::Failed(error),
        };
        Some(NodeReport {
            address: node.address,
            objection,
        })
    };
    NodeReports::new(nodes.into_iter().filter_map(report).collect())
}
