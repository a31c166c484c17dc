//! The fault matrix, rows 18 to 20, 22 to 24, 28 and 38: keys that disappear, change, or belong to another
//! client. The warning of row 18 is in `warnings.rs`, row 21 in `wire.rs`.

use redlock_kit::RedisServers;
use redlock_tokio::{ExtendError, LockError, LockGuard, LossReason, Redlock, ReleaseOutcome};

use crate::{
    fleet::{clis, each, fleet},
    support::{Cli, MS, eventually, unrenewed},
};

async fn three() -> (RedisServers, Redlock, Vec<Cli>) {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    (servers, redlock, nodes)
}

/// A lock that is not renewed, and whose key is on all nodes.
async fn held() -> (RedisServers, LockGuard, Vec<Cli>) {
    let (servers, redlock, nodes) = three().await;
    let guard = unrenewed(redlock.lock("k")).await;
    let is_set = || nodes.iter().all(|it| it.get("k").is_some());
    eventually("the key is set", is_set).await;
    (servers, guard, nodes)
}

async fn is_lost(guard: &LockGuard) {
    let outcome = guard.extend().await;
    assert_refused!(outcome, ExtendError::Lost(LossReason::KeysLost));
    assert_eq!(guard.lost().await, LossReason::KeysLost);
    assert!(!guard.is_valid());
}

/// A server's clock that jumps an hour ahead ends the keys at once, as an expiry in the past does here.
#[tokio::test]
async fn row_19_majority_of_clocks_jump() {
    let (_servers, guard, nodes) = held().await;
    assert_eq!(each(&nodes[..2], &["PEXPIREAT", "k", "1"]), ["1"; 2]);
    is_lost(&guard).await;
}

/// The key expires long before the next renewal, which sets it again.
#[tokio::test]
async fn row_18_a_key_that_is_cut_to_50_ms_is_back_with_the_next_renewal() {
    let (_servers, redlock, nodes) = three().await;
    let guard = redlock.lock("k").ttl(MS(6000)).await.unwrap();
    let is_set = || nodes.iter().all(|it| it.get("k").is_some());
    eventually("the key is set", is_set).await;
    let value = nodes[0].get("k");
    assert_eq!(nodes[0].run(&["PEXPIRE", "k", "50"]), "1");
    let has_expired = || nodes[0].run(&["INFO", "stats"]).contains("expired_keys:1");
    eventually("the key expired", has_expired).await;
    assert!(guard.is_valid(), "two of three have it");
    let is_back = || nodes[0].get("k") == value && nodes[0].pttl("k") > 1000;
    eventually("it is set again", is_back).await;
    assert!(guard.is_valid());
    // It counts again.
    assert_eq!(nodes[1].run(&["DEL", "k"]), "1");
    guard.extend().await.expect("by the first and the third");
}

#[tokio::test]
async fn row_20_eviction() {
    let (_servers, guard, nodes) = held().await;
    for node in &nodes[..2] {
        node.run(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
        node.run(&["CONFIG", "SET", "maxmemory", "1"]);
        node.run(&["SET", "filler", "x"]);
        let evicted = || node.run(&["INFO", "stats"]).contains("evicted_keys:1");
        eventually("the lock was evicted", evicted).await;
    }
    is_lost(&guard).await;
}

#[tokio::test]
async fn row_22_flushall() {
    let (_servers, guard, nodes) = held().await;
    assert_eq!(each(&nodes, &["FLUSHALL"]), ["OK"; 3]);
    is_lost(&guard).await;
}

#[tokio::test]
async fn row_23_foreign_delete_or_overwrite() {
    let (_servers, guard, nodes) = held().await;
    assert_eq!(nodes[0].run(&["DEL", "k"]), "1");
    nodes[1].set("k", "foreign");
    is_lost(&guard).await;
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::NotHeld);
    eventually("ours is released", || nodes[2].get("k").is_none()).await;
    assert_eq!(nodes[1].get("k").as_deref(), Some("foreign"));
}

#[tokio::test]
async fn row_24_wrong_type() {
    let (_servers, redlock, nodes) = three().await;
    assert_eq!(each(&nodes[..2], &["LPUSH", "k", "foreign"]), ["1"; 2]);
    let outcome = redlock.lock("k").wait(MS(200)).await;
    assert_refused!(outcome, LockError::Contended(_));
    eventually("ours is released", || nodes[2].get("k").is_none()).await;
    assert_eq!(
        each(&nodes[..2], &["LRANGE", "k", "0", "-1"]),
        ["foreign"; 2]
    );
    // A foreign value on a minority does not prevent the lock.
    assert_eq!(nodes[0].run(&["DEL", "k"]), "1");
    let guard = redlock.lock("k").await.expect("two of three");
    guard.extend().await.expect("by two of three");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    assert_eq!(nodes[1].run(&["LRANGE", "k", "0", "-1"]), "foreign");
}

#[tokio::test]
async fn row_28_script_flush_in_a_loop() {
    let (_servers, redlock, nodes) = three().await;
    let flushing = tokio::task::spawn_blocking(move || {
        for _ in 0..30 {
            assert_eq!(each(&nodes, &["SCRIPT", "FLUSH"]), ["OK"; 3]);
        }
        nodes
    });
    let mut cycles = 0;
    while !flushing.is_finished() || cycles < 50 {
        let guard = redlock.lock("k").await.unwrap();
        guard.extend().await.unwrap();
        assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
        cycles += 1;
    }
    let nodes = flushing.await.unwrap();
    let is_gone = || nodes.iter().all(|it| it.get("k").is_none());
    eventually("nothing is left", is_gone).await;
}

#[tokio::test]
#[allow(clippy::mem_forget, reason = "the test is about a leak")]
async fn row_38_guard_leaked() {
    let (_servers, redlock, _nodes) = three().await;
    let lock = redlock.lock("k").ttl(MS(600)).max_hold(MS(700));
    let guard = lock.await.unwrap();
    let hold = guard.hold().view();
    std::mem::forget(guard);
    assert!(redlock.try_lock("k").await.is_err(), "it is renewed");
    let next = redlock.lock("k").wait(MS(8000)).await.expect("in the end");
    assert_eq!(hold.lost().await, LossReason::MaxHold);
    assert!(!hold.is_valid());
    drop(next);
}
