//! The end of a lock that readers share.

use redlock_tokio::LossReason;

use crate::support::{
    MS, acquired,
    in_memory::{client, fleet, set_down, settle},
    unrenewed,
};

#[tokio::test(start_paused = true)]
async fn a_reader_that_dies_keeps_writers_out_for_its_own_ttl() {
    let (nodes, [dead, alive]) = fleet().await;
    // It renews nothing, and releases nothing while the test runs.
    let _forgotten = unrenewed(dead.rw_lock("catalogue").read().ttl(MS(2000))).await;
    let other = alive.rw_lock("catalogue").read().await.unwrap();
    tokio::time::sleep(MS(1000)).await;
    other.extend().await.unwrap();
    let writer = client(&nodes).await;
    let begin = tokio::time::Instant::now();
    drop(other);
    let guard = writer.rw_lock("catalogue").write().await.unwrap();
    let waited = begin.elapsed();
    assert!(waited > MS(900) && waited < MS(1100), "{waited:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn readers_are_lost_as_locks_are() {
    let (nodes, [redlock]) = fleet().await;
    let catalogue = redlock.rw_lock("catalogue");
    let [one, other] = acquired([catalogue.read(), catalogue.read()]).await;
    assert!(nodes.iter().all(|node| node.remove("catalogue")));
    assert_eq!(one.lost().await, LossReason::KeysLost);
    assert_eq!(other.lost().await, LossReason::KeysLost);
    drop((one, other));
    let again = catalogue.read().await.expect("it is free");
    nodes[0].remove("catalogue");
    again.extend().await.unwrap();
    settle().await;
    assert!(nodes[0].contains("catalogue"), "it is repaired");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_a_lost_lock_learns_of_the_loss() {
    for notices_first in [false, true] {
        let (nodes, [redlock]) = fleet().await;
        let catalogue = redlock.rw_lock("catalogue");
        let [one, _other] = acquired([catalogue.read(), catalogue.read()]).await;
        set_down(&nodes, true);
        let left = one.remaining();
        let clone = one.hold().clone();
        if notices_first {
            tokio::time::sleep(left + MS(1)).await;
        } else {
            // No timer runs before the guard is dropped.
            tokio::time::advance(left + MS(1)).await;
        }
        drop(one);
        let told = tokio::time::timeout(MS(60_000), clone.lost()).await;
        assert_eq!(told, Ok(LossReason::Expired));
    }
}
