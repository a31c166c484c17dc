//! Gathering several keys: an attempt that keeps the keys it gets while it waits for the others.
//!
//! An attempt that sets all keys or none starves beside clients that keep each of the keys busy, because the keys are
//! rarely free at the same moment. So a lease of several keys that has waited for a while *gathers* them. On each node,
//! in their order, the keys are set that are free, up to the first that is not. The node agrees once all of them are
//! ours, and until then it is asked again.
//!
//! Clients that gather do not wait for each other in a circle, because all of them go through the keys in the same order,
//! and begin with the same node. As long as no node has all keys, only the first one is asked that is left. So until
//! then the other nodes are enough for the other clients.
//!
//! All of this is one attempt with one token. Validity counts from the beginning of the attempt, and the keys are released
//! after its end only. So it is as safe as an attempt whose requests take long. Its time is limited, since a holder of one
//! of the keys may want another one.

use core::time::Duration;

use super::transmit::Operation;
use crate::{NodeId, NodeSet, Timestamp, Ttl, retry::share, tally::Tally};

/// A lease of several keys gathers them after it has waited for this long.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a gathering lasts at most: some turns of other processes for each of several keys.
const DURATION: Duration = Duration::from_millis(400);

/// Neither is longer than the ttl divided by this, so that most of the validity is left.
const PART_OF_TTL: u32 = 8;

/// Where the nodes are slow, a gathering, and the pause after it, last for at least this many round trips. The first is
/// enough to ask one node, then again, and then all. The second is enough to see that all keys are free, to confirm it,
/// and to try to set them at once. Without this, a gathering could be too short to succeed, and leave no time for
/// anything else.
const ROUND_TRIPS: u32 = 5;

/// When a lease of several keys gathers them next, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatheringPlan {
    pub(super) due: Timestamp,
    patience: Duration,
    duration: Duration,
    longest: Duration,
}

impl GatheringPlan {
    /// Makes the plan of a lease that begins to wait at `since`.
    pub(super) fn new(since: Timestamp, ttl: Ttl) -> Self {
        let most = ttl.as_duration() / PART_OF_TTL;
        let patience = PATIENCE.min(most);
        Self {
            due: since.saturating_add(patience),
            patience,
            duration: DURATION.min(most),
            longest: most,
        }
    }

    /// Starts to gather, for no longer than to the deadline. Returns until when. After that, others have the keys for a
    /// random time of at least the patience.
    pub(super) fn start(&mut self, now: Timestamp, deadline: Timestamp, random: u64) -> Timestamp {
        let until = now.saturating_add(self.duration);
        let pause = self.patience.saturating_add(share(self.patience, random));
        self.due = until.saturating_add(pause);
        until.min(deadline)
    }

    /// Makes the next gathering and the pause before it long enough for round trips like this one.
    pub(super) fn allow_for(&mut self, now: Timestamp, round_trip: Duration) {
        let round_trips = round_trip.saturating_mul(ROUND_TRIPS);
        self.duration = self.duration.max(round_trips).min(self.longest);
        self.due = self.due.max(now.saturating_add(round_trips));
    }
}

/// The state of the nodes in an attempt that gathers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gathering {
    pub(super) operation: Operation,
    /// When the attempt ends without a majority.
    pub(super) until: Timestamp,
    since: Timestamp,
    /// How long the first answer took.
    round_trip: Option<Duration>,
    /// When the nodes that lack a key are asked again if nothing happens before.
    again_at: Timestamp,
    /// The nodes that were asked.
    asked: NodeSet,
    /// Those of them whose last answer was that another client has some key.
    lacking: NodeSet,
    /// Those that have not answered yet, and on which a key has changed meanwhile.
    changed: NodeSet,
}

impl Gathering {
    pub(super) const fn new(operation: Operation, since: Timestamp, until: Timestamp) -> Self {
        Self {
            operation,
            until,
            since,
            round_trip: None,
            again_at: Timestamp::MAX,
            asked: NodeSet::EMPTY,
            lacking: NodeSet::EMPTY,
            changed: NodeSet::EMPTY,
        }
    }

    /// Notes that a node has answered.
    pub(super) fn note_answer(&mut self, now: Timestamp) {
        self.round_trip
            .get_or_insert(now.saturating_duration_since(self.since));
    }

    /// Returns how long a round trip takes, or how long the first one has taken by now.
    pub(super) fn round_trip(&self, now: Timestamp) -> Duration {
        self.round_trip
            .unwrap_or_else(|| now.saturating_duration_since(self.since))
    }

    /// Takes the answer of a node on which another client has some key. Returns whether to ask it again at once, or
    /// else it is asked at `again_at`, or with the nodes that have waited for that before.
    pub(super) fn handle_denial(&mut self, node: NodeId, again_at: Timestamp) -> bool {
        if !self.asked.contains(node) {
            return false;
        }
        if self.lacking.is_empty() {
            self.again_at = again_at;
        }
        let has_changed = self.changed.remove(node);
        if !has_changed {
            self.lacking.insert(node);
        }
        has_changed
    }

    /// Notes that a key may be free on a node now. Returns whether to ask the node again at once.
    pub(super) fn handle_change(&mut self, node: NodeId) -> bool {
        let is_lacking = self.lacking.remove(node);
        if !is_lacking && self.asked.contains(node) {
            self.changed.insert(node);
        }
        is_lacking
    }

    /// Takes the nodes that lack a key, to ask them again.
    pub(super) fn take_lacking(&mut self) -> NodeSet {
        core::mem::take(&mut self.lacking)
    }

    /// Takes the nodes whose turn it is to be asked for the first time.
    pub(super) fn take_next(&mut self, tally: &Tally) -> NodeSet {
        let undecided = tally.undecided();
        let has_keys = tally
            .granted()
            .union(tally.outbid())
            .union(tally.quarantined());
        let next = if has_keys.is_empty() {
            undecided
                .iter()
                .next()
                .map_or(NodeSet::EMPTY, NodeSet::from)
        } else {
            undecided
        };
        let next = next.difference(self.asked);
        self.asked = self.asked.union(next);
        next
    }

    /// Returns when something is to be done if nothing happens before.
    pub(super) fn timeout(&self) -> Timestamp {
        if self.lacking.is_empty() {
            self.until
        } else {
            self.until.min(self.again_at)
        }
    }
}
