//! Nodes that answer, and refuse each lock. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{
    MemoryNode, NodeState, Redlock,
    errors::NotReady,
    node::{Command, Operation, Session},
};

use crate::support::{
    MS, assert_says, built,
    in_memory::three_nodes,
    scripted::{Scripted, out_of_memory, over_custom},
    states::votes,
};

/// A node that sets no key while it refuses, like a server without memory. It does the rest as usual.
fn refusing(node: &MemoryNode, refuses: &Arc<AtomicBool>) -> Scripted {
    let refuses = Arc::clone(refuses);
    Scripted::new(node, move |node, batch| {
        let is_refused = |command: &&Command| {
            matches!(command.operation(), Operation::Acquire { .. }) && refuses.load(SeqCst)
        };
        let refused: Vec<_> = batch.iter().map(|it| is_refused(&it)).collect();
        let carried_out: Vec<_> = batch.iter().filter(|it| !is_refused(it)).cloned().collect();
        let answers = node.execute(&carried_out);
        async move {
            let mut answers = answers.await?.into_iter();
            let answer = |is_refused: bool| match is_refused {
                true => Some(Err(out_of_memory())),
                false => answers.next(),
            };
            Ok(refused.into_iter().map_while(answer).collect())
        }
        .boxed()
    })
}

async fn three_refusing() -> (Redlock, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(true));
    let nodes = three_nodes().into_iter().map(|it| refusing(&it, &refuses));
    (built(over_custom(nodes)).await, refuses)
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
    let (redlock, refuses) = three_refusing().await;
    let ready = redlock.ready(Duration::ZERO).await;
    ready.expect("nobody has asked");
    let error = redlock.try_lock("k").await.unwrap_err();
    assert_says(&error, "OOM");
    assert!(is_refused(&redlock), "{:?}", redlock.nodes());
    let outcome = redlock.ready(Duration::ZERO).await;
    let error = assert_refused!(outcome, NotReady::NoQuorum { .. });
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
    let (redlock, _) = three_refusing().await;
    redlock.try_lock("k").await.unwrap_err();
    tokio::time::sleep(MS(9900)).await;
    assert!(is_refused(&redlock));
    redlock.ready(MS(2000)).await.expect("it is forgotten");
    assert!((0..3).all(|node| votes(&redlock, node)));
}
