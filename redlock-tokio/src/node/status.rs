use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{Checks, Quorum};

use crate::{NodeError, NodeReport, NodeReports, Objection, ServerInfo};

/// The status of a node, for logs and dashboards. Returned by [`Redlock::nodes`](crate::Redlock::nodes).
///
/// ```
/// # use redlock_tokio::{MemoryNode, NodeState, Redlock};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = [(); 3].map(|()| MemoryNode::new());
/// nodes[1].set_down(true);
/// let redlock = Redlock::builder().custom_nodes(nodes).build().await?;
/// let status = redlock.nodes();
/// assert_eq!(status[0].state, NodeState::Voting);
/// assert!(matches!(status[1].state, NodeState::Reconnecting(_)));
/// println!("{}: {}", status[1].address, status[1].state);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address, without credentials.
    pub address: Arc<str>,
    /// Whether the node can vote for a lock, and if not, why.
    pub state: NodeState,
    /// The address of the server that owns the node, if sentinels or a cluster name it, as of the last connection.
    pub owner: Option<Arc<str>>,
    /// The server's description of itself at the last connection.
    pub server: Option<ServerInfo>,
    /// The checks that were unmet at the last connection, since the server did not say what they need. A node
    /// that has some votes only because of
    /// [`allow_unvetted_nodes`](crate::RedlockBuilder::allow_unvetted_nodes). A [`Check`](crate::Check) says what
    /// is lost.
    pub unmet: Checks,
    /// The time of the last answer, from when the request was sent. It contains the wait behind other requests.
    pub round_trip: Option<Duration>,
}

/// Whether a node can vote for a lock, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The node votes.
    Voting,
    /// The node may lack a lock that is still held. It came up or became the master too recently, or no client has
    /// known it as the master for long enough.
    Quarantined {
        /// The time until the node votes.
        remaining: Duration,
    },
    /// The node is connected, but no majority of the servers that name its master has confirmed it within the
    /// [window](crate::RedlockBuilder::confirmation_window). Another server may be the master by now. The node votes
    /// again when they confirm it.
    Unconfirmed,
    /// The node has stopped answering. It is asked again when it answers an earlier request, or on another connection.
    Silent,
    /// There is no connection. The lane tries to connect again and again.
    Reconnecting(NodeError),
    /// The node answers, but must not vote before its configuration or that of this client is changed; or it has refused
    /// the last request to set a key, with `OOM`, `CLUSTERDOWN` or the like. Such a refusal is forgotten when the node
    /// sets a key again, or finds it taken, and otherwise after ten seconds without a request.
    Refused(NodeError),
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voting => f.write_str("voting"),
            Self::Quarantined { remaining } => {
                let remaining = *remaining;
                Objection::Quarantined { remaining }.fmt(f)
            }
            Self::Unconfirmed => Objection::Unconfirmed.fmt(f),
            Self::Silent => f.write_str("silent"),
            Self::Reconnecting(error) | Self::Refused(error) => error.fmt(f),
        }
    }
}

/// Returns the time until a majority may vote. `None` if more than quarantines prevents a majority.
pub(crate) fn quorum_in(nodes: &[NodeStatus], quorum: Quorum) -> Option<Duration> {
    let mut waits: Vec<_> = nodes
        .iter()
        .filter_map(|node| match node.state {
            NodeState::Voting => Some(Duration::ZERO),
            NodeState::Quarantined { remaining } => Some(remaining),
            NodeState::Unconfirmed
            | NodeState::Silent
            | NodeState::Reconnecting(_)
            | NodeState::Refused(_) => None,
        })
        .collect();
    waits.sort_unstable();
    waits.get(quorum.votes() - 1).copied()
}

pub(crate) fn objections(nodes: Vec<NodeStatus>) -> NodeReports {
    let report = |node: NodeStatus| {
        let objection = match node.state {
            NodeState::Voting => return None,
            NodeState::Quarantined { remaining } => Objection::Quarantined { remaining },
            NodeState::Unconfirmed => Objection::Unconfirmed,
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
