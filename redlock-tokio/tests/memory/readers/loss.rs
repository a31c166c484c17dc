//! The end of a lock that readers share.

use redlock_tokio::{LockOptions, LossReason};

use super::client;
use crate::support::{
    MS,
    in_memory::{settle, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn a_reader_that_dies_keeps_writers_out_for_its_own_ttl() {
    let nodes = three_nodes();
    let (dead, alive) = (client(&nodes).await, client(&nodes).await);
    let short = LockOptions::new().ttl(MS(2000)).no_renewal();
    // It renews nothing, and releases nothing while the test runs.
    let _forgotten = dead
        .rw_lock("catalogue")
        .read()
        .options(short)
        .await
        .unwrap();
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
    let nodes = three_nodes();
    let redlock = client(&nodes).await;
    let catalogue = redlock.rw_lock("catalogue");
    let [one, other] = [
        catalogue.read().await.unwrap(),
        catalogue.read().await.unwrap(),
    ];
    nodes
        .iter()
        .for_each(|node| assert!(node.remove("catalogue")));
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
        let nodes = three_nodes();
        let catalogue = client(&nodes).await.rw_lock("catalogue");
        let [one, _other] = [
            catalogue.read().await.unwrap(),
            catalogue.read().await.unwrap(),
        ];
        nodes.iter().for_each(|node| node.set_down(true));
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
