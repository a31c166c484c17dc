//! Calls whose nodes are overloaded.

use std::error::Error;

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, LockError, MemoryNode, NodeError, Redlock,
    node::{Answer, Command, Node, Session},
};
use redlock_tower::{CallError, LockLayer};
use tower::{Layer, ServiceExt};

use crate::support::{MS, assert_refused, idle};

/// A node that is asked for more than it can do.
#[derive(Clone)]
struct Overloaded(MemoryNode);

impl Node for Overloaded {
    fn address(&self) -> &str {
        self.0.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let session = self.clone();
        async { Ok(Box::new(session) as Box<dyn Session>) }.boxed()
    }
}

impl Session for Overloaded {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let answers = batch.iter().map(|_| Err(NodeError::Overloaded)).collect();
        async move { Ok(answers) }.boxed()
    }
}

/// The nodes work, so another call may hold the lock.
#[tokio::test(start_paused = true)]
async fn calls_do_not_run_without_a_lock_while_their_nodes_are_overloaded() {
    let nodes = [(); 3].map(|()| Overloaded(MemoryNode::new()));
    let builder = Redlock::builder().custom_nodes(nodes).clock(Clock::tokio());
    let layer = LockLayer::new(builder.build().await.unwrap(), |(): &()| "k")
        .wait(MS(300))
        .fail_open(true);
    let call = layer.layer(idle()).oneshot(());
    let error = assert_refused!(call, CallError::Unavailable(LockError::Overloaded(_)));
    let source = error.source().expect("the error of the lock");
    assert!(source.is::<LockError>());
}
