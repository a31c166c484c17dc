//! Locks over nodes in memory, by tokio's clock, for paused runtimes.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use redlock_tokio::{
    Clock, Lock, LockError, LockGuard, MemoryNode, NodeError, Redlock, RedlockBuilder, Ttl,
    node::{Node, Session},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, yield_now},
    time::sleep,
};

use super::built;

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

pub(crate) async fn client(nodes: &[MemoryNode]) -> Redlock {
    built(over(nodes)).await
}

/// Three nodes, and some clients of them.
pub(crate) async fn fleet<const N: usize>() -> (Vec<MemoryNode>, [Redlock; N]) {
    let nodes = three_nodes();
    let clients = clients(&nodes).await;
    (nodes, clients)
}

pub(crate) async fn clients<const N: usize>(nodes: &[MemoryNode]) -> [Redlock; N] {
    let clients = join_all([(); N].map(|()| client(nodes))).await;
    clients.try_into().expect("as many as asked for")
}

/// A process, another process, and their nodes.
pub(crate) struct Two {
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) own: Redlock,
    pub(crate) other: Redlock,
}

impl Two {
    pub(crate) async fn new() -> Self {
        let nodes = three_nodes();
        let client = async || built(over(&nodes).max_ttl(Duration::from_secs(60))).await;
        let (own, other) = (client().await, client().await);
        Self { nodes, own, other }
    }
}

/// Takes a lock again and again, and holds it for some time.
pub(crate) async fn keep_busy(lock: impl Fn() -> Lock, hold: Duration) {
    loop {
        let _guard = lock().wait(Duration::MAX).await.unwrap();
        sleep(hold).await;
    }
}

/// Connects to five nodes, and returns both.
pub(crate) async fn five_nodes_and_lock() -> (Vec<MemoryNode>, Redlock) {
    let nodes: Vec<_> = (0..5).map(|_| MemoryNode::new()).collect();
    let redlock = over(&nodes).build().await.unwrap();
    (nodes, redlock)
}

/// Asks for a lock that is taken, and returns the request once it waits.
pub(crate) async fn blocked(lock: Lock) -> JoinHandle<Result<LockGuard, LockError>> {
    let waiting = tokio::spawn(lock.into_future());
    settle().await;
    assert!(!waiting.is_finished(), "the lock is free");
    waiting
}

/// Sets a key on behalf of another client.
pub(crate) fn hold(nodes: &[MemoryNode], key: &str, ttl: Duration) {
    let ttl = Ttl::new(ttl).unwrap();
    nodes
        .iter()
        .for_each(|node| node.insert(key, "foreign", ttl));
}

pub(crate) fn set_down(nodes: &[MemoryNode], is_down: bool) {
    nodes.iter().for_each(|node| node.set_down(is_down));
}

pub(crate) fn all_empty(nodes: &[MemoryNode]) -> bool {
    nodes.iter().all(MemoryNode::is_empty)
}

/// Returns a runtime with one thread, by the machine's clock.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns a runtime with one thread and a paused clock.
pub(crate) fn paused_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// Lets every task run that is ready.
pub(crate) async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}
