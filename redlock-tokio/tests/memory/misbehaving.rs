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

use redlock_tokio::{Clock, LockOptions, NodeError, NodeState, Redlock};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    odd_node::{Manner, Odd, with_one},
    support::{
        MS, eventually,
        in_memory::{fleet, hold, settle},
    },
};

#[tokio::test(start_paused = true)]
async fn a_node_that_closes_every_connection_is_asked_rarely() {
    let (odd, redlock) = with_one(Manner::HangsUp, Clock::tokio()).await;
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
    let votes = || redlock.nodes()[0].state == NodeState::Voting;
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
    let (_odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    redlock.inspect("k").await.unwrap();
    let shutdown = tokio::time::timeout(MS(1), redlock.shutdown(None));
    assert!(shutdown.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_one_timeout_and_then_nothing() {
    let (odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    // The other two nodes decide, so not even the first request waits.
    for number in 0..20 {
        let before = Instant::now();
        let guard = redlock.lock(format!("k{number}")).await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(guard);
        tokio::time::sleep(MS(20)).await;
    }
    // The swallowed requests set their keys late, and those are released once the node is back.
    odd.set(Manner::Obeys);
    odd.digest();
    tokio::time::sleep(MS(3000)).await;
    assert!(odd.inner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_node_shows_its_round_trip_and_its_silence() {
    let (odd, redlock) = with_one(Manner::Dawdles(MS(20)), Clock::tokio()).await;
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
    let (odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(redlock.lock(format!("k{number}")).await.unwrap());
        tokio::time::sleep(MS(1)).await;
    }
    assert_eq!(odd.batches.load(SeqCst), 8);
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_pile_up_at_a_slow_node() {
    let dawdles = Manner::Dawdles(MS(45));
    let (odd, redlock) = with_one(dawdles, Clock::tokio()).await;
    let mut guards = Vec::new();
    // None of them takes any time, so the slow node has answered nothing when the last one is there.
    for number in 0..14_000 {
        guards.push(redlock.lock(format!("k{number}")).await.unwrap());
    }
    // Long enough for all requests, and before the first renewal.
    tokio::time::sleep(MS(3000)).await;
    let asked_for = odd.inner.len();
    assert!((8_192..13_000).contains(&asked_for), "{asked_for} keys");
}

/// Attempts for keys that are taken would keep busy nodes busy, and the more of them there are, the longer each takes.
#[tokio::test(start_paused = true)]
async fn many_that_wait_make_one_attempt_each_although_the_nodes_are_slow() {
    const WAITING: usize = 10_000;
    let clock = Clock::tokio();
    let nodes = [(); 3].map(|()| Odd::new(Manner::Dawdles(MS(30)), clock.clone()));
    let inner = nodes.clone().map(|node| node.inner);
    let first = nodes[0].clone();
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    let redlock = builder.build().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..WAITING {
        let key = format!("k{number}");
        hold(&inner, &key, MS(60_000));
        waiting.spawn(redlock.lock(key).wait(Duration::MAX).into_future());
    }
    tokio::time::sleep(MS(5000)).await;
    assert!(waiting.try_join_next().is_none());
    let attempts = first.releases.load(SeqCst);
    assert_eq!(attempts, WAITING);
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_too_late_are_not_counted() {
    let clock = Clock::tokio();
    let manners = [
        Manner::Obeys,
        Manner::Dawdles(MS(60)),
        Manner::Dawdles(MS(60)),
    ];
    let nodes = manners.map(|it| Odd::new(it, clock.clone()));
    let kept = nodes.clone();
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    let redlock = builder.build().await.unwrap();
    let error = redlock.try_lock("k").await.unwrap_err().to_string();
    assert!(error.contains("no quorum"), "{error}");
    assert!(error.contains("no answer within 50ms"), "{error}");
    kept.iter().for_each(|it| it.set(Manner::Obeys));
    tokio::time::sleep(MS(1000)).await;
    // It is released where it was set late.
    assert!(kept.iter().all(|it| it.inner.is_empty()));
    assert!(redlock.try_lock("k").await.is_ok());
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

#[test]
fn a_service_whose_runtime_ends_first_leaves_nothing_behind() {
    let marker = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut node = Odd::new(Manner::Swallows, Clock::system());
        node.connections = Arc::clone(&marker);
        let builder = Redlock::builder().custom_nodes([node]);
        let redlock = runtime.block_on(builder.build()).unwrap();
        runtime.block_on(async {
            let waiting = redlock.lock("k").into_future();
            assert!(tokio::time::timeout(MS(5), waiting).await.is_err());
        });
        drop(runtime);
    }
    assert_eq!(Arc::strong_count(&marker), 1);
}
