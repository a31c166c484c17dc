//! Nodes that answer late, never, or with a refusal, and connections that break. A lane recovers from each of
//! them, and neither spins nor grows meanwhile.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::{Clock, LockOptions, NodeError, NodeState, Redlock, errors::NotReady};
use tokio::task::JoinSet;

use crate::{
    odd_node::{Manner, Odd, with_one, with_three},
    support::{
        MS, assert_says, eventually,
        in_memory::{fleet, hold, settle},
        states::votes,
    },
};

#[tokio::test(start_paused = true)]
async fn a_node_that_closes_every_connection_is_asked_rarely() {
    let (odd, redlock) = with_one(Manner::HangsUp).await;
    drop(redlock.lock("k").await.unwrap());
    settle().await;
    let state = redlock.nodes()[2].state.clone();
    let NodeState::Reconnecting(NodeError::Unreachable(why)) = &state else {
        panic!("{state:?}")
    };
    assert!(why.contains("hung up"), "{why}");
    tokio::time::sleep(MS(9000)).await;
    let connections = odd.connections.load(SeqCst);
    assert!((2..30).contains(&connections), "{connections} in 9 s");
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(2000)).await;
    let before = odd.connections.load(SeqCst);
    for _ in 0..10 {
        drop(redlock.lock("k").await.unwrap());
        tokio::time::sleep(MS(500)).await;
    }
    assert_eq!(odd.connections.load(SeqCst), before, "it has recovered");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_back_for_a_while_is_soon_connected_again() {
    let (nodes, [redlock]) = fleet().await;
    let fail_for = async |time| {
        nodes[0].set_down(true);
        drop(redlock.lock("k").await.unwrap());
        tokio::time::sleep(time).await;
        nodes[0].set_down(false);
    };
    let votes = || votes(&redlock, 0);
    fail_for(MS(60_000)).await;
    tokio::time::sleep(MS(5000)).await;
    assert!(votes());
    fail_for(MS(5)).await;
    assert!(!votes());
    tokio::time::sleep(MS(100)).await;
    assert!(votes());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_node_that_has_not_answered_an_inspection() {
    let (_odd, redlock) = with_one(Manner::Swallows).await;
    redlock.inspect("k").await.unwrap();
    let shutdown = tokio::time::timeout(MS(1), redlock.shutdown(None));
    assert!(shutdown.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_node_shows_its_round_trip_and_its_silence() {
    let (odd, redlock) = with_one(Manner::Dawdles(MS(20))).await;
    let status = || redlock.nodes().remove(2);
    assert_eq!(status().round_trip, None);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(100)).await;
    assert_eq!(status().round_trip, Some(MS(20)));
    odd.set(Manner::Swallows);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(100)).await;
    assert_eq!(status().state, NodeState::Silent);
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(3000)).await;
    assert_eq!(status().state, NodeState::Voting);
    assert!(status().round_trip.unwrap() < MS(20));
}

#[tokio::test(start_paused = true)]
async fn at_most_eight_batches_are_in_flight_to_a_node() {
    let (odd, redlock) = with_one(Manner::Swallows).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(redlock.lock(format!("k{number}")).await.unwrap());
        tokio::time::sleep(MS(1)).await;
    }
    assert_eq!(odd.batches.load(SeqCst), 8);
}

/// Attempts for keys that are taken would keep busy nodes busy, and the more of them there are, the longer each takes.
#[tokio::test(start_paused = true)]
async fn many_that_wait_make_one_attempt_each_although_the_nodes_are_slow() {
    const WAITING: usize = 2000;
    let dawdle = [Manner::Dawdles(MS(30)); 3];
    let (nodes, redlock) = with_three(dawdle, Clock::tokio()).await;
    let inner = nodes.each_ref().map(|node| node.inner.clone());
    let mut waiting = JoinSet::new();
    for number in 0..WAITING {
        let key = format!("k{number}");
        hold(&inner, &key, MS(60_000));
        waiting.spawn(redlock.lock(key).wait(Duration::MAX).into_future());
    }
    tokio::time::sleep(MS(5000)).await;
    assert!(waiting.try_join_next().is_none());
    assert_eq!(nodes[0].releases.load(SeqCst), WAITING);
}

#[tokio::test]
async fn a_dropped_service_leaves_nothing_behind() {
    let marker = Arc::new(AtomicUsize::new(0));
    let options = LockOptions::new().ttl(MS(300));
    for how in 0..3 {
        let mut node = Odd::new(Manner::Obeys, Clock::system());
        node.connections = Arc::clone(&marker);
        let builder = Redlock::builder().custom_nodes([node]).options(options);
        let redlock = builder.build().await.unwrap();
        let guard = redlock.lock("k").await.unwrap();
        match how {
            0 => drop((redlock, guard)),
            1 => drop((guard, redlock)),
            _ => {
                drop(redlock);
                guard.release().await;
            }
        }
    }
    let have_ended = || Arc::strong_count(&marker) == 1;
    eventually("lanes and timers have ended", have_ended).await;
}

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
