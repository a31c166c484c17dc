use redlock_core::{NodeId, SetRequestState};

use crate::sync::atomic::{AtomicU64, Ordering};

/// The requests to set the key of one lease that lanes sent.
#[derive(Debug, Default)]
pub(crate) struct SetRequests {
    /// The nodes to which such a request was sent: each may hold the key.
    sent: AtomicNodeSet,
    /// The nodes to which such a request was sent on a connection that broke before the answer
    /// came.
    unanswered: AtomicNodeSet,
}

impl SetRequests {
    /// Returns those of a lease that has sent a request to this node, for all that is known.
    pub(crate) fn sent_to(node: NodeId) -> Self {
        let requests = Self::default();
        requests.note_sent(node);
        requests
    }

    /// Notes that a request was sent to the node.
    pub(super) fn note_sent(&self, node: NodeId) {
        self.sent.insert(node);
    }

    /// Notes that a request was sent to the node on a connection that broke before the answer.
    pub(super) fn note_unanswered(&self, node: NodeId) {
        self.unanswered.insert(node);
    }

    /// Returns whether a request was sent to the node, which may hold the key then.
    pub(crate) fn was_sent(&self, node: NodeId) -> bool {
        self.sent.contains(node)
    }

    /// Returns what became of the requests to the node.
    pub(super) fn state(&self, node: NodeId) -> SetRequestState {
        if self.unanswered.contains(node) {
            SetRequestState::Unanswered
        } else if self.sent.contains(node) {
            SetRequestState::Sent
        } else {
            SetRequestState::NeverSent
        }
    }
}

/// A set to which nodes are only ever added.
#[derive(Debug, Default)]
struct AtomicNodeSet(AtomicU64);

impl AtomicNodeSet {
    fn insert(&self, node: NodeId) {
        self.0.fetch_or(1 << node.index(), Ordering::Relaxed);
    }

    fn contains(&self, node: NodeId) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << node.index()) != 0
    }
}
