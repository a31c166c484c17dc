//! Extensions by another ttl than the lock's own, on nodes in memory with a clock that the tests move. How long they
//! last in each case is checked against the reference of `redlock-core`, and what they do to a key is in the table of
//! `conformance`.

use std::time::Duration;

use redlock_tokio::{ExtendError, MemoryNode, Redlock, errors::OptionsError};

use crate::support::{
    MS, assert_says, built,
    in_memory::{all_empty, over, three_nodes},
    unrenewed,
};

/// What the default drift takes off a validity: a hundredth of the ttl and 2 ms.
fn validity(ttl: Duration) -> Duration {
    ttl - ttl / 100 - MS(2)
}

/// Three nodes over which a lock may be extended by a minute.
async fn in_memory() -> (Vec<MemoryNode>, Redlock) {
    let nodes = three_nodes();
    let redlock = built(over(&nodes).max_ttl(MS(60_000))).await;
    (nodes, redlock)
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
    // The line that mends it.
    assert_says(
        &error,
        "which is 60s: build with `Redlock::builder().max_ttl(Duration::from_millis(60001))`",
    );
    let (ttl, max_ttl) = (MS(60_001), MS(60_000));
    let longer = OptionsError::LongerThanMaxTtl { ttl, max_ttl };
    assert_eq!(error, ExtendError::InvalidTtl(longer));
    assert_eq!(guard.remaining(), validity(MS(60_000)));
}

/// A node that could not be reached is owed the release for as long as its key may live.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_extended_for_long_is_released_at_once_or_as_soon_as_possible() {
    let (nodes, redlock) = in_memory().await;
    let guard = unrenewed(redlock.lock("k").ttl(MS(5000))).await;
    guard.extend_for(MS(60_000)).await.unwrap();
    nodes[2].set_down(true);
    guard.release().await;
    tokio::time::sleep(MS(30_000)).await;
    assert!(all_empty(&nodes[..2]) && nodes[2].contains("k"));
    nodes[2].set_down(false);
    tokio::time::sleep(MS(2000)).await;
    assert!(!nodes[2].contains("k"), "the release was delivered");
}
