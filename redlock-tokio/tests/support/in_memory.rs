//! Locks over nodes in memory, by tokio's clock. For paused runtimes.

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

/// Lets everything that is ready happen.
pub(crate) async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}
