use redlock_core::{NodeId, SetRequestState, Token};

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The requests to set the key of one lease that lanes sent.
#[derive(Debug, Default)]
pub(crate) struct SetRequests {
    /// The nodes to which such a request was sent: each may hold the key.
    sent: AtomicNodeSet,
    /// The nodes to which such a request was sent on a connection that broke before the answer
    /// came.
    unanswered: AtomicNodeSet,
    /// The latest attempt of which a request was unanswered. It can set no key of a later one.
    latest_unanswered: AtomicU32,
}

impl SetRequests {
    /// Returns those of a lease that has sent a request to this node, for all that is known.
    pub(crate) fn sent_to(node: NodeId) -> Self {
        let requests = Self::default();
        requests.note_sent(node);
        requests
    }

    pub(super) fn note_sent(&self, node: NodeId) {
        self.sent.insert(node);
    }

    /// Notes that a request was sent to the node on a connection that broke before the answer.
    pub(super) fn note_unanswered(&self, node: NodeId, token: Token) {
        self.latest_unanswered
            .fetch_max(token.attempt(), Ordering::Relaxed);
        self.unanswered.insert(node);
    }

    /// Returns whether a request was sent to the node, which may hold the key then.
    pub(crate) fn was_sent(&self, node: NodeId) -> bool {
        self.sent.contains(node)
    }

    /// Returns what became of the requests to the node that can set the key with this token.
    pub(super) fn state(&self, node: NodeId, token: Token) -> SetRequestState {
        let is_earlier = token.attempt() <= self.latest_unanswered.load(Ordering::Relaxed);
        if is_earlier && self.unanswered.contains(node) {
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

#[cfg(test)]
mod tests {
    use redlock_core::Nonce;

    use super::*;

    #[test]
    fn an_unanswered_request_counts_for_the_keys_that_it_can_set() {
        let requests = SetRequests::default();
        let [node, other] = [0, 1].map(|it| NodeId::new(it).expect("below 64"));
        let token = |attempt| Nonce::new(7).token(attempt);
        requests.note_sent(node);
        requests.note_sent(other);
        requests.note_unanswered(node, token(3));
        assert_eq!(requests.state(node, token(3)), SetRequestState::Unanswered);
        assert_eq!(requests.state(node, token(2)), SetRequestState::Unanswered);
        assert_eq!(requests.state(node, token(4)), SetRequestState::Sent);
        assert_eq!(requests.state(other, token(3)), SetRequestState::Sent);
    }
}
