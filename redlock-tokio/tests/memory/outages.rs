//! Outages: the first requests, which do not know of it when they begin, and those that fail at once because it is known. In
//! paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{join_all, pending, ready},
};
use redlock_tokio::{LockError, LockOptions, MemoryNode, NodeError, Redlock, node::Session};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, built,
    in_memory::{blocked, fleet, over, paused_runtime, set_down, three_nodes},
    kinds::KINDS,
    scripted::{Scripted, out_of_memory, over_custom},
};

fn fail_fast() -> LockOptions {
    LockOptions::new().fail_fast(true)
}

/// Returns how long it took to learn that there is no quorum.
async fn refused_after(redlock: &Redlock, options: LockOptions) -> Duration {
    let asked = Instant::now();
    let outcome = redlock.lock("k").options(options).await;
    assert_refused!(outcome, LockError::NoQuorum(_));
    asked.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_at_once_only_while_it_is_known_that_no_majority_can_vote() {
    let (nodes, [redlock]) = fleet().await;
    let short = LockOptions::new().wait(MS(300));
    drop(redlock.lock("k").options(fail_fast()).await.unwrap());

    // One of three may fail.
    nodes[2].set_down(true);
    drop(redlock.lock("k").await.unwrap());
    sleep(MS(3000)).await;
    drop(redlock.lock("k").options(fail_fast()).await.unwrap());

    // Nobody knows of the outage before the first request.
    set_down(&nodes[1..], true);
    assert!(refused_after(&redlock, fail_fast().or(short)).await <= MS(51));
    sleep(MS(1000)).await;
    for _ in 0..10 {
        let waited = refused_after(&redlock, fail_fast()).await;
        assert!(waited <= MS(51), "{waited:?}");
    }
    assert!(refused_after(&redlock, short).await >= MS(200));
}

/// A request tries to connect before it is refused. The pauses between attempts to connect are longer than its wait.
#[tokio::test(start_paused = true)]
async fn a_request_notices_that_an_outage_is_over() {
    for options in [fail_fast(), LockOptions::new().wait(MS(100))] {
        let (nodes, [redlock]) = fleet().await;
        for pause in 0..100 {
            set_down(&nodes[1..], true);
            redlock.try_lock("k").await.unwrap_err();
            sleep(MS(3000)).await;
            refused_after(&redlock, options).await;
            sleep(MS(pause)).await;
            set_down(&nodes[1..], false);
            let asked = Instant::now();
            drop(redlock.lock("k").options(options).await.unwrap());
            assert!(asked.elapsed() <= MS(51), "{:?}", asked.elapsed());
        }
    }
}

/// A node whose connections hang.
fn unreachable(attempts: &Arc<AtomicUsize>) -> Scripted {
    let attempts = Arc::clone(attempts);
    Scripted::obeying(&MemoryNode::new()).connect(move || {
        attempts.fetch_add(1, SeqCst);
        pending().boxed()
    })
}

/// No request waits for the end of the attempt, or begins another.
#[tokio::test(start_paused = true)]
async fn an_attempt_to_connect_that_hangs_delays_a_request_no_longer_than_the_node_timeout() {
    let attempts = Arc::default();
    let builder = over_custom([unreachable(&attempts)]).node_timeout(MS(70));
    let redlock = built(builder.connect_timeout(MS(20_000))).await;
    // The first attempt has ended. The second one begins 10 to 20 ms later.
    let waited = refused_after(&redlock, fail_fast()).await;
    assert!((MS(80)..=MS(92)).contains(&waited), "{waited:?}");
    for _ in 0..10 {
        assert_eq!(refused_after(&redlock, fail_fast()).await, Duration::ZERO);
        sleep(MS(1000)).await;
    }
    assert_eq!(attempts.load(SeqCst), 2);
}

/// However many requests there are, a node is connected to only once in the time that it may take to answer.
#[tokio::test(start_paused = true)]
async fn attempts_to_connect_are_no_storm() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let refusing = three_nodes().into_iter().map(|node| {
        let attempts = Arc::clone(&attempts);
        Scripted::obeying(&node).connect(move || {
            attempts.fetch_add(1, SeqCst);
            ready(Err(NodeError::Unreachable("connection refused".into()))).boxed()
        })
    });
    let redlock = built(over_custom(refusing)).await;
    let requests = (0..10_000).map(|number| {
        let (redlock, attempts) = (redlock.clone(), Arc::clone(&attempts));
        async move {
            sleep(Duration::from_micros(number * 100)).await;
            redlock.lock("k").options(fail_fast()).await.unwrap_err();
            attempts.load(SeqCst)
        }
    });
    join_all(requests).await;
    let attempts = attempts.load(SeqCst);
    // 20 in the second of the requests, and some at once in the beginning.
    assert!((3 * 10..=3 * 25).contains(&attempts), "{attempts}");
}

#[test]
fn a_request_in_doubt_ends_with_the_runtime_of_its_lanes() {
    let lanes = paused_runtime();
    let redlock = lanes.block_on(built(over_custom([unreachable(&Arc::default())])));
    let mut request = redlock.lock("k").options(fail_fast()).into_future();
    let begun = lanes.block_on(async { (&mut request).now_or_never() });
    assert!(begun.is_none());
    drop(lanes);
    let ended = async { tokio::time::timeout(MS(1000), request).await };
    let outcome = paused_runtime().block_on(ended).expect("it ended");
    assert_refused!(outcome, LockError::ShutDown);
}

/// All connections are lost at once, and opened again. The requests at that moment are not refused.
#[tokio::test(start_paused = true)]
async fn connections_that_were_just_lost_are_no_known_outage() {
    let cuts = Arc::new(AtomicBool::new(false));
    // To open a connection takes 10 ms.
    let nodes = three_nodes().into_iter().map(|node| {
        let cuts = Arc::clone(&cuts);
        let node = Scripted::new(&node, move |node, batch| match cuts.load(SeqCst) {
            true => ready(Err(NodeError::Disconnected("cut".into()))).boxed(),
            false => node.execute(batch),
        });
        node.connect(|| sleep(MS(10)).map(Ok).boxed())
    });
    let redlock = built(over_custom(nodes)).await;
    sleep(MS(5000)).await;
    cuts.store(true, SeqCst);
    let first = blocked(redlock.lock("a").options(fail_fast())).await;
    cuts.store(false, SeqCst);
    assert!(redlock.ready(Duration::ZERO).await.is_err());
    let second = redlock.lock("b").options(fail_fast()).await;
    drop(second.expect("they are back soon"));
    drop(first.await.unwrap().expect("it tried again"));
}

async fn seeded(nodes: &[MemoryNode], seed: u64) -> Redlock {
    built(over(nodes).random_seed(seed).options(fail_fast())).await
}

/// Nobody has the lock when the outage begins, then another process, and then another task.
#[tokio::test(start_paused = true)]
async fn the_first_request_of_an_outage_is_refused_once_connecting_has_failed() {
    for (seed, kind) in (0..20).flat_map(|seed| KINDS.iter().map(move |kind| (seed, kind))) {
        let nodes = three_nodes();
        let redlock = seeded(&nodes, seed).await;
        sleep(MS(7 * seed)).await;
        set_down(&nodes[1..], true);
        let begin = Instant::now();
        assert_refused!((kind.lock)(&redlock).await, LockError::NoQuorum(_));
        let waited = begin.elapsed();
        assert!(waited <= MS(100), "{}, {seed}: {waited:?}", kind.name);

        for is_own in [false, true] {
            let nodes = three_nodes();
            let redlock = seeded(&nodes, seed).await;
            let another = seeded(&nodes, seed + 1).await;
            // The next look at the key shows the outage, or the next extension.
            let (holder, limit) = match is_own {
                false => ((kind.holder)(&another), MS(10_100)),
                true => ((kind.holder)(&redlock).ttl(MS(600)), MS(300)),
            };
            let held = holder.await.unwrap();
            let waiting = blocked((kind.lock)(&redlock)).await;
            sleep(MS(7 * seed)).await;
            set_down(&nodes[1..], true);
            let begin = Instant::now();
            assert_refused!(waiting.await.unwrap(), LockError::NoQuorum(_));
            let waited = begin.elapsed();
            assert!(waited <= limit, "{}, {seed}: {waited:?}", kind.name);
            drop(held);
        }
    }
}

/// Nodes that break their connections in their first second are connected to more and more rarely, unless a request
/// wants that.
#[tokio::test(start_paused = true)]
async fn the_first_request_of_an_outage_just_after_another_is_refused_as_fast() {
    let nodes = three_nodes();
    let redlock = seeded(&nodes, 7).await;
    let patient = LockOptions::new().fail_fast(false);
    for _ in 0..20 {
        set_down(&nodes[1..], true);
        let begin = Instant::now();
        redlock.lock("k").await.unwrap_err();
        assert!(begin.elapsed() <= MS(110), "{:?}", begin.elapsed());
        set_down(&nodes[1..], false);
        drop(redlock.lock("k").options(patient).await.unwrap());
    }
}

/// So it does each time, and not only when a node begins to refuse.
#[tokio::test(start_paused = true)]
async fn a_request_ends_once_a_majority_has_refused_it() {
    let full = [(); 2].map(|()| {
        Scripted::new(&MemoryNode::new(), |_, batch| {
            ready(Ok(vec![Err(out_of_memory()); batch.len()])).boxed()
        })
    });
    let redlock = built(over_custom(full).options(fail_fast())).await;
    for _ in 0..10 {
        let asked = Instant::now();
        let error = redlock.lock("k").await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
        assert!(asked.elapsed() <= MS(100), "{:?}", asked.elapsed());
        sleep(MS(1500)).await;
    }
}
