//! Nodes that answer, and refuse each lock. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, MemoryNode, NodeError, NodeState, NotReady, Redlock,
    node::{Answer, Command, Operation, Session},
};

use crate::support::{MS, in_memory::Opens};

/// A node that sets no key while it refuses, like a server without memory. It does the rest as usual.
#[derive(Clone)]
struct Refusing {
    inner: MemoryNode,
    refuses: Arc<AtomicBool>,
}

impl Session for Refusing {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let is_refused = |command: &&Command| {
            matches!(command.operation(), Operation::Acquire { .. }) && self.refuses.load(SeqCst)
        };
        let refused: Vec<_> = batch.iter().map(|it| is_refused(&it)).collect();
        let carried_out: Vec<_> = batch.iter().filter(|it| !is_refused(it)).cloned().collect();
        let answers = self.inner.execute(&carried_out);
        async move {
            let mut answers = answers.await?.into_iter();
            let answer = |is_refused: bool| match is_refused {
                true => Some(Err(NodeError::Refused {
                    code: "OOM".into(),
                    message: "command not allowed".into(),
                })),
                false => answers.next(),
            };
            Ok(refused.into_iter().map_while(answer).collect())
        }
        .boxed()
    }
}

async fn refusing() -> (Redlock, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(true));
    let node = || {
        Opens::new(Refusing {
            inner: MemoryNode::new(),
            refuses: Arc::clone(&refuses),
        })
    };
    let builder = Redlock::builder().custom_nodes([node(), node(), node()]);
    let redlock = builder.clock(Clock::tokio()).build().await.unwrap();
    (redlock, refuses)
}

fn is_refused(redlock: &Redlock) -> bool {
    let nodes = redlock.nodes();
    nodes.iter().all(|node| match &node.state {
        NodeState::Refused(error) => error.to_string().contains("OOM"),
        _ => false,
    })
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refuse_each_lock_are_not_ready_and_say_why() {
    let (redlock, refuses) = refusing().await;
    redlock
        .ready(Duration::ZERO)
        .await
        .expect("nobody has asked");
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert!(is_refused(&redlock), "{:?}", redlock.nodes());
    let error = redlock.ready(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, NotReady::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");

    refuses.store(false, SeqCst);
    let waiting = redlock.ready(MS(5000));
    let asking = async {
        tokio::time::sleep(MS(1000)).await;
        drop(redlock.lock("k").await.unwrap());
    };
    let (ready, ()) = tokio::join!(waiting, asking);
    ready.expect("the nodes have granted a lock");
}

/// Without requests nobody knows whether the nodes still refuse. They are then worth a try.
#[tokio::test(start_paused = true)]
async fn a_refusal_counts_for_ten_seconds_if_nobody_asks() {
    let (redlock, _) = refusing().await;
    redlock.try_lock("k").await.unwrap_err();
    tokio::time::sleep(MS(9900)).await;
    assert!(is_refused(&redlock));
    redlock.ready(MS(2000)).await.expect("it is forgotten");
    assert!(
        redlock
            .nodes()
            .iter()
            .all(|it| it.state == NodeState::Voting)
    );
}
