use std::{sync::Arc, time::Duration};

use redlock_core::{Checks, Eligibility, Timestamp};
use tokio::sync::futures::Notified;

use crate::{
    NodeError, NodeState, NodeStatus, ServerInfo,
    sync::{
        Mutex, MutexGuard, Notify,
        atomic::{AtomicU64, Ordering},
    },
};

/// The state of a node, as its lane has noted it last.
#[derive(Debug)]
pub(super) struct StatusBoard {
    entry: Mutex<Entry>,
    changed: Notify,
    /// In nanoseconds. Zero means that nothing was answered yet.
    round_trip: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    condition: Condition,
    server: Option<ServerInfo>,
    unmet: Checks,
}

#[derive(Clone, Debug)]
enum Condition {
    Connected { eligibility: Eligibility },
    Silent,
    Disconnected(NodeError),
}

impl StatusBoard {
    pub(super) fn new(cause: NodeError) -> Self {
        Self {
            entry: Mutex::new(Entry {
                condition: Condition::Disconnected(cause),
                server: None,
                unmet: Checks::NONE,
            }),
            changed: Notify::new(),
            round_trip: AtomicU64::new(0),
        }
    }

    /// Notes that there is a connection, and what the server says of itself on it.
    pub(super) fn connected(
        &self,
        server: Option<ServerInfo>,
        unmet: Checks,
        eligibility: Eligibility,
    ) {
        *self.lock() = Entry {
            condition: Condition::Connected { eligibility },
            server,
            unmet,
        };
        self.changed.notify_waiters();
    }

    /// Notes that there is no connection, and why.
    pub(super) fn disconnected(&self, cause: NodeError) {
        self.enter(Condition::Disconnected(cause));
    }

    /// Notes that the node has stopped answering.
    pub(super) fn silent(&self) {
        self.enter(Condition::Silent);
    }

    /// Notes that the connected node answers, and what its votes are worth.
    pub(super) fn answering(&self, eligibility: Eligibility) {
        self.enter(Condition::Connected { eligibility });
    }

    /// Notes how long the last answers took.
    pub(super) fn answered_in(&self, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }

    fn round_trip(&self) -> Option<Duration> {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Returns how the node is.
    pub(super) fn status(&self, address: &Arc<str>, now: Timestamp) -> NodeStatus {
        let entry = self.lock();
        let state = match &entry.condition {
            Condition::Connected { eligibility } => {
                if eligibility.covers(now) {
                    NodeState::Voting
                } else if eligibility.is_unconfirmed(now) {
                    NodeState::Unconfirmed
                } else {
                    let remaining = eligibility.remaining(now);
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
            unmet: entry.unmet,
            round_trip: self.round_trip(),
        }
    }

    /// Resolves at the next change of the state.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn enter(&self, condition: Condition) {
        self.lock().condition = condition;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Entry> {
        self.entry.lock()
    }
}
