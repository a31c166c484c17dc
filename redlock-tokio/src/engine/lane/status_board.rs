use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redlock_core::{Eligibility, Timestamp};
use tokio::sync::{Notify, futures::Notified};

use crate::{
    NodeError, NodeState, NodeStatus, ServerInfo,
    sync::{Mutex, MutexGuard},
};

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

    fn lock(&self) -> MutexGuard<'_, Entry> {
        self.entry.lock()
    }
}
