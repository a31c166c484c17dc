use std::{sync::Arc, time::Duration};

use redlock_core::{Checks, Eligibility, Timestamp};
use tokio::{sync::futures::Notified, time::sleep};

use super::handle::Counters;
use crate::{
    Clock, NodeError, NodeState, NodeStatus, ServerInfo,
    engine::requests::Link,
    foreign,
    observer::{Event, NodeChange, NodeEvent, Observers},
    sync::{
        Mutex, Notify,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// For how long a node counts as one that refuses, if nobody asks it again. The cause may be over by then, and only a
/// request to set a key shows that.
const REFUSAL_COUNTS_FOR: Duration = Duration::from_secs(10);

/// For how long it is known that a node refuses, so that no other request need find out.
const REFUSAL_IS_KNOWN_FOR: Duration = Duration::from_secs(1);

/// Whether a node can vote soon, by what its lane knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prospect {
    MayVote,
    /// It could not be connected to, and may be back since then.
    InDoubt,
    NoVote,
}

/// The state of a node, as its lane has noted it last.
pub(crate) struct StatusBoard {
    entry: Mutex<Entry>,
    changed: Notify,
    link: Link,
    /// A request would like the next attempt to connect to begin.
    wanted: Notify,
    /// In nanoseconds. Zero means that nothing was answered yet.
    round_trip: AtomicU64,
    /// Whether the session reports when a probed key is gone.
    notifies: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    condition: Condition,
    owner: Option<Arc<str>>,
    server: Option<ServerInfo>,
    /// Whether there was a connection.
    is_known: bool,
    unmet: Checks,
    /// Set if the node has refused the last request to set a key.
    refusal: Option<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    cause: NodeError,
    at: Timestamp,
}

#[derive(Clone, Debug)]
enum Condition {
    Connected {
        eligibility: Eligibility,
    },
    Silent,
    /// The connection was lost, or there was none yet. An attempt to connect is under way.
    Connecting(NodeError),
    /// The attempt to connect takes longer than a node may take to answer.
    Hanging(NodeError),
    /// The last attempt to connect has failed.
    Disconnected {
        cause: NodeError,
        at: Timestamp,
    },
}

impl StatusBoard {
    pub(super) fn new(cause: NodeError, link: Link) -> Self {
        Self {
            entry: Mutex::new(Entry {
                condition: Condition::Connecting(cause),
                owner: None,
                server: None,
                is_known: false,
                unmet: Checks::default(),
                refusal: None,
            }),
            changed: Notify::new(),
            link,
            wanted: Notify::new(),
            round_trip: AtomicU64::new(0),
            notifies: AtomicBool::new(false),
        }
    }

    pub(super) fn set_notifies(&self, notifies: bool) {
        self.notifies.store(notifies, Ordering::Relaxed);
    }

    /// Returns whether the node reports when a probed key is gone. One that is away or silent does not.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies.load(Ordering::Relaxed)
            && matches!(self.entry.lock().condition, Condition::Connected { .. })
    }

    /// Notes that there is a connection, to the owner that an authority names, and what the server says of itself on it.
    pub(super) fn connected(
        &self,
        owner: Option<Arc<str>>,
        server: Option<ServerInfo>,
        unmet: Checks,
        eligibility: Eligibility,
    ) {
        *self.entry.lock() = Entry {
            condition: Condition::Connected { eligibility },
            owner,
            server,
            is_known: true,
            unmet,
            refusal: None,
        };
        self.notify();
        // The node may have restarted, and is in quarantine then.
        self.link.lost_vote();
    }

    /// Notes what the server says of itself on the same connection, if it kept its name to itself before.
    pub(super) fn introduced(&self, server: &ServerInfo) {
        let mut entry = self.entry.lock();
        if entry.server.as_ref().is_none_or(|it| it.run_id.is_none()) {
            entry.server = Some(server.clone());
        }
    }

    pub(super) fn connecting(&self, cause: NodeError) {
        self.enter(Condition::Connecting(cause));
    }

    /// Notes that an attempt to connect has failed, and why. Requests that began later have it tried again.
    pub(super) fn disconnected(&self, at: Timestamp, cause: NodeError) {
        self.enter(Condition::Disconnected { cause, at });
        self.link.lost_vote();
    }

    /// Notes that the attempt to connect takes longer than a node may take to answer.
    pub(super) fn hanging(&self, cause: NodeError) {
        self.enter(Condition::Hanging(cause));
        self.link.lost_vote();
    }

    /// Ends the pause before the next attempt to connect, unless it would be refused again.
    pub(crate) fn want_connection(&self) {
        if let Condition::Hanging(cause) | Condition::Disconnected { cause, .. } =
            &self.entry.lock().condition
            && !cause.is_refusal()
        {
            self.wanted.notify_one();
        }
    }

    /// Waits until a request would like the next attempt to connect to begin, and for this pause at least.
    pub(super) async fn connection_wanted(&self, pause: Duration) {
        sleep(pause).await;
        self.wanted.notified().await;
    }

    pub(super) fn silent(&self) {
        self.enter(Condition::Silent);
    }

    /// Notes that the connected node answers, and what its votes are worth.
    pub(super) fn answering(&self, eligibility: Eligibility) {
        self.enter(Condition::Connected { eligibility });
    }

    /// Notes that votes of the connected node were withdrawn, and what its votes are worth now.
    pub(super) fn withdrawn(&self, eligibility: Eligibility) {
        self.answering(eligibility);
        self.link.lost_vote();
    }

    /// Notes whether the node has refused the last request to set a key.
    pub(super) fn asked_to_set_key(&self, now: Timestamp, cause: Option<&NodeError>) {
        let mut entry = self.entry.lock();
        let is_change = match (&entry.refusal, cause) {
            // Nobody relied on it any more.
            (Some(before), Some(_)) => before.age(now) >= REFUSAL_IS_KNOWN_FOR,
            (before, cause) => before.is_some() != cause.is_some(),
        };
        entry.refusal = cause.map(|cause| Refusal {
            cause: cause.clone(),
            at: now,
        });
        drop(entry);
        if is_change {
            self.notify();
        }
        if is_change && cause.is_some() {
            self.link.lost_vote();
        }
    }

    pub(super) fn answered_in(&self, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }

    pub(super) fn status(&self, address: &Arc<str>, now: Timestamp) -> NodeStatus {
        let entry = self.entry.lock();
        let nanos = self.round_trip.load(Ordering::Relaxed);
        NodeStatus {
            address: Arc::clone(address),
            state: entry.state(now),
            owner: entry.owner.clone(),
            server: entry.server.clone(),
            unmet: entry.unmet,
            round_trip: (nanos > 0).then(|| Duration::from_nanos(nanos)),
        }
    }

    /// Returns whether the node can vote at `by`. A failure to connect that is not later than `since`
    /// leaves that in doubt.
    pub(crate) fn prospect(&self, now: Timestamp, by: Timestamp, since: Timestamp) -> Prospect {
        let entry = self.entry.lock();
        let refusal = entry.refusal.as_ref();
        let refuses = refusal.is_some_and(|it| it.age(now) < REFUSAL_IS_KNOWN_FOR);
        match &entry.condition {
            Condition::Disconnected { cause, at } if *at <= since && !cause.is_refusal() => {
                Prospect::InDoubt
            }
            Condition::Connected { eligibility }
                if !refuses
                    && (eligibility.is_unconfirmed(now) || eligibility.starts_at() <= by) =>
            {
                Prospect::MayVote
            }
            Condition::Hanging(_)
            | Condition::Disconnected { .. }
            | Condition::Connected { .. } => Prospect::NoVote,
            // It may be back in a moment.
            Condition::Silent | Condition::Connecting(_) => Prospect::MayVote,
        }
    }

    pub(crate) fn is_voting(&self, now: Timestamp) -> bool {
        matches!(self.entry.lock().state(now), NodeState::Voting)
    }

    /// Ranks a node by the name that its server has for itself, or by its address if the server has none. A node that was never
    /// connected ranks highest, since its name is unknown. Also returns whether it votes now.
    pub(crate) fn rank(
        &self,
        now: Timestamp,
        address: &str,
        rank: impl FnOnce(&[u8]) -> u64,
    ) -> (u64, bool) {
        let entry = self.entry.lock();
        let is_voting = matches!(entry.state(now), NodeState::Voting);
        let name = entry.server.as_ref().and_then(|it| it.run_id.as_ref());
        let rank = match name {
            Some(name) => rank(name.as_ref()),
            None if entry.is_known => rank(address.as_bytes()),
            None => u64::MAX,
        };
        (rank, is_voting)
    }

    /// Resolves at the next change of the state. A quarantine that ends by itself is no such change.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn enter(&self, condition: Condition) {
        self.entry.lock().condition = condition;
        self.notify();
    }

    pub(super) fn notify(&self) {
        // This wakes tasks of the user.
        foreign::call(|| self.changed.notify_waiters());
    }
}

impl Entry {
    fn state(&self, now: Timestamp) -> NodeState {
        match &self.condition {
            Condition::Connected { eligibility } if eligibility.covers(now) => {
                match &self.refusal {
                    Some(refusal) if refusal.age(now) < REFUSAL_COUNTS_FOR => {
                        NodeState::Refused(refusal.cause.clone())
                    }
                    _ => NodeState::Voting,
                }
            }
            Condition::Connected { eligibility } if eligibility.is_unconfirmed(now) => {
                NodeState::Unconfirmed
            }
            Condition::Connected { eligibility } => {
                let remaining = eligibility.remaining(now);
                NodeState::Quarantined { remaining }
            }
            Condition::Silent => NodeState::Silent,
            Condition::Connecting(cause)
            | Condition::Hanging(cause)
            | Condition::Disconnected { cause, .. } => {
                let cause = cause.clone();
                if cause.is_refusal() {
                    NodeState::Refused(cause)
                } else {
                    NodeState::Reconnecting(cause)
                }
            }
        }
    }
}

impl Refusal {
    fn age(&self, now: Timestamp) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// A node as observers know it.
pub(super) struct ObservedNode {
    observers: Observers,
    address: Arc<str>,
    clock: Clock,
    state: Option<NodeState>,
    owed: usize,
    abandoned: usize,
}

impl ObservedNode {
    pub(super) fn new(observers: Observers, address: Arc<str>, clock: Clock) -> Self {
        Self {
            observers,
            address,
            clock,
            state: None,
            owed: 0,
            abandoned: 0,
        }
    }

    pub(super) fn note_connection(&self, status: &StatusBoard) {
        self.tell(|| NodeChange::Connected {
            owner: status.entry.lock().owner.clone(),
        });
    }

    pub(super) fn note_answer(&self, round_trip: Duration) {
        self.tell(|| NodeChange::Answered { round_trip });
    }

    /// Tells the observers what has changed since the last call.
    pub(super) fn look(&mut self, status: &StatusBoard, counters: &Counters) {
        if self.observers.is_empty() {
            return;
        }
        let now = self.clock.now();
        let state = status.entry.lock().state(now);
        let is_news = match (&self.state, &state) {
            // It gets shorter by itself.
            (
                Some(NodeState::Quarantined { remaining: before }),
                NodeState::Quarantined { remaining },
            ) => remaining > before,
            (before, state) => before.as_ref() != Some(state),
        };
        if is_news {
            self.tell(|| NodeChange::Entered(state.clone()));
        }
        self.state = Some(state);
        let releases = counters.owed();
        if releases != self.owed {
            self.owed = releases;
            self.tell(|| NodeChange::Owed { releases });
        }
        let abandoned = counters.abandoned.load(Ordering::Relaxed);
        let releases = abandoned - self.abandoned;
        if releases > 0 {
            self.abandoned = abandoned;
            self.tell(|| NodeChange::Abandoned { releases });
        }
    }

    fn tell(&self, change: impl FnOnce() -> NodeChange) {
        if self.observers.is_empty() {
            return;
        }
        self.observers.tell(&Event::Node(NodeEvent {
            at: self.clock.now(),
            address: Arc::clone(&self.address),
            change: change(),
        }));
    }
}

impl Drop for ObservedNode {
    fn drop(&mut self) {
        self.tell(|| NodeChange::Ended);
    }
}
