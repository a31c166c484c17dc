//! Releases that do not reach their node, or that it refuses: they are owed, delivered later, or counted as abandoned.

use std::sync::atomic::Ordering::SeqCst;

use redlock_tokio::Redlock;
use tokio::time::Instant;

use crate::{
    odd_node::{Manner, with_one},
    support::{
        MS, built,
        in_memory::{fleet, over, runtime, three_nodes},
    },
};

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_releases_is_asked_rarely() {
    const LOCKS: usize = 3000;
    let (odd, redlock) = with_one(Manner::RefusesReleases).await;
    for number in 0..LOCKS {
        drop(redlock.lock(format!("k{number}")).await.unwrap());
    }
    tokio::time::sleep(MS(1)).await;
    let before = odd.releases.load(SeqCst);
    assert!(before >= LOCKS);
    tokio::time::sleep(MS(2000)).await;
    let again = odd.releases.load(SeqCst) - before;
    // A batch of 512, every quarter of a second.
    assert!((512..=9 * 512).contains(&again), "{again} in 2 s");
    odd.inner.clear();
    odd.set(Manner::Obeys);
    redlock.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_owed_to_a_node_that_was_never_asked() {
    let nodes = three_nodes();
    nodes[0].set_down(true);
    let redlock = built(over(&nodes)).await;
    for _ in 0..100 {
        drop(redlock.lock("k").await.unwrap());
    }
    let before = Instant::now();
    assert_eq!(redlock.shutdown(None).await.abandoned, 0);
    assert!(before.elapsed() < MS(100), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_the_releases_that_a_node_has_not_confirmed() {
    for (manner, pause) in [
        (Manner::Swallows, MS(0)),          // in flight
        (Manner::Swallows, MS(2000)),       // in flight again, on the second connection
        (Manner::RefusesReleases, MS(100)), // owed
    ] {
        let (odd, redlock) = with_one(Manner::Obeys).await;
        let guard = redlock.lock("k").await.unwrap();
        odd.set(manner);
        drop(guard);
        tokio::time::sleep(pause).await;
        let report = redlock.shutdown(MS(1)).await;
        assert_eq!((report.abandoned, report.timed_out), (1, true));
        odd.set(Manner::Obeys);
        let report = redlock.shutdown(None).await;
        assert_eq!((report.abandoned, report.timed_out), (0, false));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owed_release_is_delivered_on_the_next_connection_or_abandoned_with_its_key() {
    for (down_for, abandoned) in [(MS(5), 0), (MS(400), 1)] {
        let (nodes, [redlock]) = fleet().await;
        let guard = redlock.lock("k").ttl(MS(300)).await.unwrap();
        nodes[0].set_down(true);
        drop(guard);
        tokio::time::sleep(down_for).await;
        nodes[0].set_down(false);
        // Without the new connection, the next try would come a quarter of a second after the last one.
        tokio::time::sleep(MS(100)).await;
        assert!(nodes[0].is_empty());
        let report = redlock.shutdown(None).await;
        assert_eq!((report.abandoned, report.timed_out), (abandoned, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_release_is_released_once_more() {
    let (odd, redlock) = with_one(Manner::Swallows).await;
    let guard = redlock.lock("k").await.unwrap();
    tokio::time::sleep(MS(100)).await;
    drop(guard);
    // The lane gives up the silent connection and delivers the release on the next one.
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(3000)).await;
    assert!(odd.releases.load(SeqCst) > 1 && odd.inner.is_empty());
    assert!(odd.set_late() > 0);
    assert!(odd.inner.contains("k"), "the late request has set its key");
    tokio::time::sleep(MS(500)).await;
    assert!(odd.inner.is_empty());
    tokio::time::sleep(MS(8000)).await;
    let before = odd.releases.load(SeqCst);
    tokio::time::sleep(MS(5000)).await;
    assert_eq!(odd.releases.load(SeqCst), before);
}

#[test]
fn releases_that_the_end_of_the_runtime_prevents_are_counted() {
    let first = runtime();
    let (redlock, guard) = first.block_on(async {
        let nodes = three_nodes();
        // Nothing is sent to this one, so it needs no release.
        nodes[0].set_down(true);
        let redlock = built(Redlock::builder().custom_nodes(nodes)).await;
        let guard = redlock.lock("k").await.unwrap();
        (redlock, guard)
    });
    // The lanes do not run any more, so nothing is sent.
    drop(guard);
    drop(first);
    let report = runtime().block_on(redlock.shutdown(None));
    assert_eq!(report.abandoned, 2);
}
