//! Calls whose nodes are overloaded.

#[path = "../../../redlock-tokio/tests/support/scripted.rs"]
#[allow(dead_code, reason = "most of it is for other tests")]
mod scripted;

use std::{error::Error, future::ready};

use futures::FutureExt;
use redlock_tokio::{LockError, MemoryNode, NodeError};
use redlock_tower::{CallError, LockLayer};
use tower::{Layer, ServiceExt};

use self::scripted::{Scripted, over_custom};
use crate::support::{MS, assert_refused, idle};

/// The nodes work, so another call may hold the lock.
#[tokio::test(start_paused = true)]
async fn calls_do_not_run_without_a_lock_while_their_nodes_are_overloaded() {
    let nodes = [(); 3].map(|()| {
        Scripted::new(&MemoryNode::new(), |_, batch| {
            let answers = batch.iter().map(|_| Err(NodeError::Overloaded));
            ready(Ok(answers.collect())).boxed()
        })
    });
    let redlock = over_custom(nodes).build().await.unwrap();
    let layer = LockLayer::new(redlock, |(): &()| "k").wait(MS(300));
    let call = layer.fail_open(true).layer(idle()).oneshot(());
    let error = assert_refused!(call, CallError::Unavailable(LockError::Overloaded(_)));
    assert!(error.source().is_some_and(|it| it.is::<LockError>()));
}
