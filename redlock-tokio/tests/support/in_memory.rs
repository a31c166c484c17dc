//! Locks over nodes in memory, by tokio's clock, for paused runtimes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, MemoryNode, NodeError, Redlock, RedlockBuilder,
    node::{Node, Session},
};
use tokio::task::yield_now;

/// A node whose sessions are clones of one.
pub(crate) struct Opens<S> {
    address: String,
    session: S,
}

impl<S> Opens<S> {
    pub(crate) fn new(session: S) -> Self {
        static NODES: AtomicUsize = AtomicUsize::new(0);
        let address = format!("node {}", NODES.fetch_add(1, Relaxed));
        Self { address, session }
    }
}

impl<S: Session + Clone + Sync + 'static> Node for Opens<S> {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async { Ok(Box::new(self.session.clone()) as Box<dyn Session>) }.boxed()
    }
}

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
