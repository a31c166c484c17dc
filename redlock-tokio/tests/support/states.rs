//! What a client knows of its nodes.

use redlock_tokio::{NodeState, Redlock};

use super::eventually;

pub(crate) fn state(redlock: &Redlock, node: usize) -> NodeState {
    redlock.nodes()[node].state.clone()
}

pub(crate) fn votes(redlock: &Redlock, node: usize) -> bool {
    state(redlock, node) == NodeState::Voting
}

pub(crate) fn is_quarantined(redlock: &Redlock, node: usize) -> bool {
    matches!(state(redlock, node), NodeState::Quarantined { .. })
}

pub(crate) fn is_reconnecting(redlock: &Redlock, node: usize) -> bool {
    matches!(state(redlock, node), NodeState::Reconnecting(_))
}

pub(crate) fn is_refused(redlock: &Redlock, node: usize) -> bool {
    matches!(state(redlock, node), NodeState::Refused(_))
}

/// Waits until the node votes.
pub(crate) async fn voting(redlock: &Redlock, node: usize) {
    eventually("the node votes", || votes(redlock, node)).await;
}

/// Waits until all nodes vote at the same time.
pub(crate) async fn all_vote(redlock: &Redlock) {
    let all_vote = || {
        let nodes = redlock.nodes();
        nodes.iter().all(|it| it.state == NodeState::Voting)
    };
    eventually("all nodes vote", all_vote).await;
}
