use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redlock_core::{Eligibility, Quorum, Timestamp};
use tokio::sync::{Notify, futures::Notified};

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

/// Where a lane notes how its node is.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    entry: Mutex<Entry>,
    changed: Notify,
    /// In nanoseconds; zero for none.
    round_trip: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    condition: Condition,
    server: Option<ServerInfo>,
}

#[derive(Clone, Debug)]
enum Condition {
    Connected { eligibility: Eligibility },
    Silent,
    Disconnected(NodeError),
}

impl StatusBoard {
    pub(crate) fn new(cause: NodeError) -> Self {
        Self {
            entry: Mutex::new(Entry {
                condition: Condition::Disconnected(cause),
                server: None,
            }),
            changed: Notify::new(),
            round_trip: AtomicU64::new(0),
        }
    }

    pub(crate) fn connected(&self, server: Option<ServerInfo>, eligibility: Eligibility) {
        *self.lock() = Entry {
            condition: Condition::Connected { eligibility },
            server,
        };
        self.changed.notify_waiters();
    }

    pub(crate) fn disconnected(&self, cause: NodeError) {
        self.enter(Condition::Disconnected(cause));
    }

    pub(crate) fn silent(&self) {
        self.enter(Condition::Silent);
    }

    pub(crate) fn answering(&self, eligibility: Eligibility) {
        self.enter(Condition::Connected { eligibility });
    }

    pub(crate) fn answered_in(&self, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn status(&self, address: &Arc<str>, now: Timestamp) -> NodeStatus {
        let entry = self.lock();
        let state = match &entry.condition {
            Condition::Connected { eligibility } => {
                let remaining = eligibility.remaining(now);
                if remaining.is_zero() {
                    NodeState::Voting
                } else {
                    NodeState::Quarantined { remaining }
                }
            }
            Condition::Silent => NodeState::Silent,
            Condition::Disconnected(error) if error.is_refusal() => {
                NodeState::Refused(error.clone())
            }
            Condition::Disconnected(error) => NodeState::Reconnecting(error.clone()),
        };
        NodeStatus {
            address: Arc::clone(address),
            state,
            server: entry.server.clone(),
            round_trip: self.round_trip(),
        }
    }

    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn enter(&self, condition: Condition) {
        self.lock().condition = condition;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entry> {
        // No code panics while it holds the lock.
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
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
