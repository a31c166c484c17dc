//! Nodes that answer, and refuse each lock. In paused time.

use std::time::Duration;

use redlock_tokio::{Clock, NodeState, Redlock, errors::NotReady};

use crate::{
    odd_node::{Manner, Odd, with_three},
    support::{MS, assert_says, states::votes},
};

#[tokio::test(start_paused = true)]
async fn nodes_that_refuse_each_lock_are_not_ready_and_say_why() {
    let (nodes, redlock) = three_that_refuse().await;
    let ready = redlock.ready(Duration::ZERO).await;
    ready.expect("nobody has asked");
    let error = redlock.try_lock("k").await.unwrap_err();
    assert_says(&error, "OOM");
    assert!(is_refused(&redlock), "{:?}", redlock.nodes());
    let outcome = redlock.ready(Duration::ZERO).await;
    assert_says(&assert_refused!(outcome, NotReady::NoQuorum { .. }), "OOM");

    nodes.iter().for_each(|it| it.set(Manner::Obeys));
    let asking = async {
        tokio::time::sleep(MS(1000)).await;
        drop(redlock.lock("k").await.unwrap());
    };
    let (ready, ()) = tokio::join!(redlock.ready(MS(5000)), asking);
    ready.expect("the nodes have granted a lock");
}

/// Without requests nobody knows whether the nodes still refuse. They are then worth a try.
#[tokio::test(start_paused = true)]
async fn a_refusal_counts_for_ten_seconds_if_nobody_asks() {
    let (_, redlock) = three_that_refuse().await;
    redlock.try_lock("k").await.unwrap_err();
    tokio::time::sleep(MS(9900)).await;
    assert!(is_refused(&redlock));
    redlock.ready(MS(2000)).await.expect("it is forgotten");
    assert!((0..3).all(|node| votes(&redlock, node)));
}

async fn three_that_refuse() -> ([Odd; 3], Redlock) {
    with_three([Manner::RefusesLocks; 3], Clock::tokio()).await
}

fn is_refused(redlock: &Redlock) -> bool {
    let nodes = redlock.nodes();
    nodes.iter().all(|node| match &node.state {
        NodeState::Refused(error) => error.to_string().contains("OOM"),
        _ => false,
    })
}
