//! Extensions by another ttl than the lock's own: on nodes in memory with a clock that the tests move, and on the keys
//! of real servers. How long they last in each case is checked against the reference of `redlock-core`.

use std::time::Duration;

use redlock_kit::RedisServers;
use redlock_tokio::{ExtendError, LockOptions, MemoryNode, Redlock, errors::OptionsError};

use crate::{
    fleet::clis,
    support::{
        Cli, MS, assert_says, built, eventually,
        in_memory::{all_empty, over, three_nodes},
    },
};

/// What the default drift takes off a validity: a hundredth of the ttl and 2 ms.
fn validity(ttl: Duration) -> Duration {
    ttl - ttl / 100 - MS(2)
}

fn without_renewal() -> LockOptions {
    LockOptions::new().ttl(MS(5000)).no_renewal()
}

/// Three nodes over which a lock may be extended by a minute.
async fn in_memory() -> (Vec<MemoryNode>, Redlock) {
    let nodes = three_nodes();
    let redlock = built(over(&nodes).max_ttl(MS(60_000))).await;
    (nodes, redlock)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_valid_for_the_longest_ttl_that_it_was_extended_by() {
    let (_nodes, redlock) = in_memory().await;
    let guard = redlock.lock("k").options(without_renewal()).await.unwrap();
    tokio::time::sleep(MS(500)).await;
    guard.extend_for(MS(8000)).await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(8000)));
    guard.extend_for(MS(100)).await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(8000)));
    tokio::time::sleep(validity(MS(8000)) - MS(1)).await;
    assert!(guard.is_valid());
    tokio::time::sleep(MS(1)).await;
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_ttl_out_of_range_is_refused_and_changes_nothing() {
    let (_nodes, redlock) = in_memory().await;
    let guard = redlock.lock("k").await.unwrap();
    guard.extend_for(MS(60_000)).await.unwrap();
    for ttl in [
        Duration::ZERO,
        MS(2),
        Duration::from_micros(2999),
        Duration::MAX,
    ] {
        let error = assert_refused!(guard.extend_for(ttl).await, ExtendError::InvalidTtl(it) => it);
        let is_named = matches!(error, OptionsError::Ttl(_) | OptionsError::Validity(_));
        assert!(is_named, "{error}");
    }
    let error = guard.extend_for(MS(60_001)).await.unwrap_err();
    assert_says(&error, "cannot extend the lock: the ttl of 60.001s");
    let (ttl, max_ttl) = (MS(60_001), MS(60_000));
    let longer = OptionsError::LongerThanMaxTtl { ttl, max_ttl };
    assert_eq!(error, ExtendError::InvalidTtl(longer));
    assert_eq!(guard.remaining(), validity(MS(60_000)));
}

#[tokio::test(start_paused = true)]
async fn no_extension_starts_after_max_hold_or_after_the_end() {
    let (_nodes, redlock) = in_memory().await;
    let guard = redlock.lock("k").max_hold(MS(4000)).await.unwrap();
    tokio::time::sleep(MS(4001)).await;
    let outcome = guard.extend_for(MS(9000)).await;
    let left = assert_refused!(outcome, ExtendError::MaxHold { remaining } => remaining);
    assert_eq!(left, guard.remaining());
    guard.lost().await;
    assert_refused!(guard.extend_for(MS(9000)).await, ExtendError::Lost(_));

    let guard = redlock.lock("other").await.unwrap();
    let hold = guard.hold().clone();
    guard.release().await;
    assert_refused!(hold.extend_for(MS(9000)).await, ExtendError::Released);
}

/// A node that could not be reached is owed the release for as long as its key may live.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_extended_for_long_is_released_at_once_or_as_soon_as_possible() {
    let (nodes, redlock) = in_memory().await;
    let guard = redlock.lock("k").options(without_renewal()).await.unwrap();
    guard.extend_for(MS(60_000)).await.unwrap();
    nodes[2].set_down(true);
    guard.release().await;
    tokio::time::sleep(MS(30_000)).await;
    assert!(all_empty(&nodes[..2]) && nodes[2].contains("k"));
    nodes[2].set_down(false);
    tokio::time::sleep(MS(2000)).await;
    assert!(!nodes[2].contains("k"), "the release was delivered");
}

#[tokio::test]
async fn the_keys_on_the_servers_live_as_long_as_the_extension_says() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = built(servers.builder().max_ttl(MS(60_000))).await;
    let nodes = clis(&servers);
    let pttl_between = |low: i64, high: i64| {
        let is_within = |it: &Cli| (low..=high).contains(&it.pttl("k"));
        nodes.iter().all(is_within)
    };
    let guard = redlock.lock("k").options(without_renewal()).await.unwrap();
    eventually("the key is set", || pttl_between(1, 5000)).await;

    guard.extend_for(MS(60_000)).await.unwrap();
    assert!(guard.remaining() > MS(50_000) && guard.remaining() < MS(60_000));
    eventually("the key lives longer", || pttl_between(50_000, 60_000)).await;

    guard.extend_for(MS(3000)).await.unwrap();
    guard.extend().await.unwrap();
    let _later = redlock.lock("the lanes have sent all").await.unwrap();
    assert!(pttl_between(40_000, 60_000), "no node shortens it");
    assert!(guard.remaining() > MS(40_000));

    guard.release().await;
    eventually("the key is gone", || pttl_between(-2, -2)).await;
}
