//! Locks over nodes in memory, by tokio's clock, for paused runtimes.

use redlock_tokio::{Clock, MemoryNode, Redlock, RedlockBuilder};
use tokio::task::yield_now;

pub(crate) async fn embedded() -> Redlock {
    Redlock::embedded().await.unwrap()
}

pub(crate) fn three_nodes() -> Vec<MemoryNode> {
    (0..3).map(|_| MemoryNode::new()).collect()
}

pub(crate) fn over(nodes: &[MemoryNode]) -> RedlockBuilder {
    Redlock::builder()
        .custom_nodes(nodes.to_vec())
        .clock(Clock::tokio())
}

/// Connects to five nodes, and returns both.
pub(crate) async fn five_nodes_and_lock() -> (Vec<MemoryNode>, Redlock) {
    let nodes: Vec<_> = (0..5).map(|_| MemoryNode::new()).collect();
    let redlock = over(&nodes).build().await.unwrap();
    (nodes, redlock)
}

pub(crate) fn all_empty(nodes: &[MemoryNode]) -> bool {
    nodes.iter().all(MemoryNode::is_empty)
}

/// Lets every task run that is ready.
pub(crate) async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}
