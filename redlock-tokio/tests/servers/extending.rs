//! Extensions by another ttl than the lock's own: on nodes in memory with a clock that the tests move, and on the keys
//! of real servers.

use std::time::Duration;

use redlock_kit::RedisServers;
use redlock_tokio::{ExtendError, LockOptions, MemoryNode, Redlock, errors::OptionsError};

use crate::support::{
    Cli, MS, eventually,
    in_memory::{all_empty, five_nodes_and_lock, over, set_down, three_nodes},
};

/// What the default drift takes off a validity: a hundredth of the ttl and 2 ms.
fn validity(ttl: Duration) -> Duration {
    ttl - ttl / 100 - MS(2)
}

fn without_renewal(ttl: Duration) -> LockOptions {
    LockOptions::new().ttl(ttl).no_renewal()
}

/// Five nodes over which a lock may be extended by a minute.
async fn five_nodes_for_a_minute() -> (Vec<MemoryNode>, Redlock) {
    let nodes: Vec<_> = (0..5).map(|_| MemoryNode::new()).collect();
    let redlock = over(&nodes).max_ttl(MS(60_000)).build().await.unwrap();
    (nodes, redlock)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_valid_for_the_ttl_that_it_was_extended_by() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let options = without_renewal(MS(2000));
    let guard = redlock.lock("k").options(options).await.unwrap();
    tokio::time::sleep(MS(500)).await;
    guard.extend_for(MS(8000)).await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(8000)));
    tokio::time::sleep(validity(MS(8000)) - MS(1)).await;
    assert!(guard.is_valid());
    tokio::time::sleep(MS(1)).await;
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_shorter_extension_never_shortens() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let options = without_renewal(MS(2000));
    let guard = redlock.lock("k").options(options).await.unwrap();
    guard.extend_for(MS(8000)).await.unwrap();
    guard.extend_for(MS(100)).await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(8000)));
    // Near the end a short extension is a gain.
    tokio::time::sleep(validity(MS(8000)) - MS(10)).await;
    guard.extend_for(MS(100)).await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(100)));
}

/// Renewals go on meanwhile. If they all fail, the lock lives for as long as it was extended, and so do its keys.
#[tokio::test(start_paused = true)]
async fn renewal_keeps_what_an_extension_has_gained() {
    let (nodes, redlock) = five_nodes_and_lock().await;
    let guard = redlock.lock("k").ttl(MS(2000)).await.unwrap();
    guard.extend_for(MS(8000)).await.unwrap();
    tokio::time::sleep(MS(4000)).await;
    assert_eq!(guard.remaining(), validity(MS(8000)) - MS(4000));
    set_down(&nodes, true);
    tokio::time::sleep(validity(MS(4000)) - MS(100)).await;
    assert!(guard.is_valid());
    assert!(nodes.iter().all(|it| it.contains("k")));
    guard.lost().await;
    tokio::time::sleep(MS(200)).await;
    assert!(nodes.iter().all(|it| !it.contains("k")));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_renewed_is_extended_by_at_least_its_own_ttl() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let guard = redlock.lock("k").ttl(MS(9000)).await.unwrap();
    tokio::time::advance(MS(2000)).await;
    guard.extend_for(MS(100)).await.unwrap();
    assert_eq!(guard.remaining(), validity(MS(9000)));
}

#[tokio::test(start_paused = true)]
async fn a_ttl_out_of_range_is_refused_and_changes_nothing() {
    let nodes = three_nodes();
    let redlock = over(&nodes).max_ttl(MS(20_000)).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    guard.extend_for(MS(20_000)).await.unwrap();
    let refusal = async |ttl| match guard.extend_for(ttl).await {
        Err(ExtendError::InvalidTtl(error)) => error,
        other => panic!("{ttl:?}: {other:?}"),
    };
    for too_short in [Duration::ZERO, MS(2), Duration::from_micros(2999)] {
        let error = refusal(too_short).await;
        assert!(
            matches!(error, OptionsError::Ttl(_) | OptionsError::Validity(_)),
            "{error}"
        );
    }
    assert!(matches!(refusal(Duration::MAX).await, OptionsError::Ttl(_)));
    let longer = OptionsError::LongerThanMaxTtl {
        ttl: MS(20_001),
        max_ttl: MS(20_000),
    };
    assert_eq!(refusal(MS(20_001)).await, longer);
    let error = guard.extend_for(MS(20_001)).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot extend the lock: the ttl of 20.001s"));
    assert_eq!(guard.remaining(), validity(MS(20_000)));
}

#[tokio::test(start_paused = true)]
async fn no_extension_starts_after_max_hold_or_after_the_end() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let guard = redlock.lock("k").max_hold(MS(4000)).await.unwrap();
    tokio::time::sleep(MS(4001)).await;
    let error = guard.extend_for(MS(9000)).await.unwrap_err();
    let ExtendError::MaxHold { remaining } = error else {
        panic!("{error}");
    };
    assert_eq!(remaining, guard.remaining());
    let hold = guard.hold().clone();
    guard.lost().await;
    let error = guard.extend_for(MS(9000)).await;
    assert!(matches!(error, Err(ExtendError::Lost(_))), "{error:?}");
    drop(guard);

    let released = redlock.lock("other").await.unwrap();
    let other = released.hold().clone();
    released.release().await;
    assert_eq!(other.extend_for(MS(9000)).await, Err(ExtendError::Released));
    assert!(hold.extend_for(MS(9000)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_extended_for_long_is_released_at_once() {
    let (nodes, redlock) = five_nodes_for_a_minute().await;
    let guard = redlock.lock("k").await.unwrap();
    guard.extend_for(MS(60_000)).await.unwrap();
    guard.release().await;
    redlock.shutdown(None).await;
    assert!(all_empty(&nodes));
}

/// A node that could not be reached is owed the release for as long as its key may live.
#[tokio::test(start_paused = true)]
async fn the_release_of_an_extended_lock_is_owed_for_as_long_as_its_key_may_live() {
    let (nodes, redlock) = five_nodes_for_a_minute().await;
    let options = without_renewal(MS(2000));
    let guard = redlock.lock("k").options(options).await.unwrap();
    guard.extend_for(MS(60_000)).await.unwrap();
    nodes[4].set_down(true);
    drop(guard);
    tokio::time::sleep(MS(30_000)).await;
    assert!(nodes[4].contains("k"));
    nodes[4].set_down(false);
    tokio::time::sleep(MS(2000)).await;
    assert!(!nodes[4].contains("k"), "the release was delivered");
}

#[tokio::test]
async fn the_keys_on_the_servers_live_as_long_as_the_extension_says() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes: Vec<_> = servers.iter().map(Cli::of).collect();
    let builder = servers.builder().max_ttl(MS(60_000));
    let redlock: Redlock = builder.build().await.unwrap();
    let pttl_between = |low: i64, high: i64| {
        let is_within = |it: &Cli| (low..=high).contains(&it.pttl("k"));
        nodes.iter().all(is_within)
    };
    let options = without_renewal(MS(5000));
    let guard = redlock.lock("k").options(options).await.unwrap();
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
