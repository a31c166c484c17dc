//! The first requests of an outage, which nobody knows of when they begin. In paused time.

use std::{env, time::Duration};

use futures::{FutureExt, future::ready};
use redlock_tokio::{LockError, LockOptions, MemoryNode, Redlock};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, built,
    in_memory::{fleet, over, set_down, three_nodes},
    kinds::{KINDS, Kind},
    scripted::{Scripted, out_of_memory, over_custom},
};

/// The holder of the lock when the outage begins.
#[derive(Clone, Copy, Debug)]
enum Holder {
    Nobody,
    AnotherProcess,
    AnotherTask,
}

async fn client(nodes: &[MemoryNode], seed: u64) -> Redlock {
    let fails_fast = LockOptions::new().fail_fast(true);
    built(over(nodes).random_seed(seed).options(fails_fast)).await
}

/// Returns how long after the beginning of the outage the request is refused.
async fn refused_after(kind: &Kind, holder: Holder, seed: u64) -> Duration {
    let nodes = three_nodes();
    let redlock = client(&nodes, seed).await;
    let another = client(&nodes, seed + 1).await;
    let often = Duration::from_millis(600);
    let held = match holder {
        Holder::Nobody => None,
        Holder::AnotherProcess => Some((kind.holder)(&another).await.unwrap()),
        Holder::AnotherTask => Some((kind.holder)(&redlock).ttl(often).await.unwrap()),
    };
    let request = (kind.lock)(&redlock).into_future();
    let request = match holder {
        Holder::Nobody => {
            sleep(MS(7 * seed)).await;
            request.boxed()
        }
        _ => {
            let waiting = tokio::spawn(request);
            sleep(MS(7 * seed)).await;
            waiting.map(Result::unwrap).boxed()
        }
    };
    set_down(&nodes[1..], true);
    let begin = Instant::now();
    assert_refused!(request.await, LockError::NoQuorum(_));
    drop(held);
    begin.elapsed()
}

/// Prints the longest of the times with `--nocapture`. `REFUSALS` is how often each is measured.
#[tokio::test(start_paused = true)]
async fn the_first_request_of_an_outage_is_refused_once_connecting_has_failed() {
    let tries = env::var("REFUSALS").map_or(20, |it| it.parse().unwrap());
    for (holder, limit) in [
        (Holder::Nobody, MS(100)),
        // The next look at the key shows the outage.
        (Holder::AnotherProcess, MS(10_100)),
        // The next extension does.
        (Holder::AnotherTask, MS(300)),
    ] {
        for kind in &KINDS {
            let mut longest = Duration::ZERO;
            for seed in 0..tries {
                longest = longest.max(refused_after(kind, holder, seed).await);
            }
            println!("{}, held by {holder:?}: {longest:?}", kind.name);
            assert!(longest <= limit, "{}, {holder:?}: {longest:?}", kind.name);
        }
    }
}

/// Nodes that break their connections in their first second are connected to more and more rarely, unless a request
/// wants that.
#[tokio::test(start_paused = true)]
async fn the_first_request_of_an_outage_just_after_another_is_refused_as_fast() {
    let nodes = three_nodes();
    let redlock = client(&nodes, 7).await;
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

/// A request that does not fail fast waits for the nodes to come back.
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_fail_fast_outlasts_an_outage() {
    let (nodes, [redlock]) = fleet().await;
    set_down(&nodes, true);
    let waiting = tokio::spawn(redlock.lock("k").into_future());
    sleep(MS(3000)).await;
    set_down(&nodes, false);
    drop(waiting.await.unwrap().unwrap());
}

/// So it does each time, and not only when a node begins to refuse.
#[tokio::test(start_paused = true)]
async fn a_request_ends_once_a_majority_has_refused_it() {
    let full = [(); 2].map(|()| {
        Scripted::new(&MemoryNode::new(), |_, batch| {
            ready(Ok(vec![Err(out_of_memory()); batch.len()])).boxed()
        })
    });
    let fails_fast = LockOptions::new().fail_fast(true);
    let redlock = built(over_custom(full).options(fails_fast)).await;
    for _ in 0..10 {
        let asked = Instant::now();
        let error = redlock.lock("k").await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
        assert!(asked.elapsed() <= MS(100), "{:?}", asked.elapsed());
        sleep(MS(1500)).await;
    }
}
