//! Holders learn that their keys are gone when the servers report it, and not only at the next renewal.

use std::time::Duration;

use redlock_kit::RedisServers;
use redlock_tokio::{LockGuard, LossReason, Redlock};
use tokio::time::timeout;

use crate::{
    fleet::{clis, each},
    support::{Cli, MS, built, eventually, trusting},
};

/// So that the next renewal, after a third of it, is far away.
const TTL: Duration = Duration::from_secs(60);

/// Five servers, and a client whose URLs end like this.
async fn five(url_end: &str) -> (RedisServers, Vec<Cli>, Redlock) {
    let servers = RedisServers::spawn(5).unwrap();
    let urls = servers.urls().into_iter().map(|url| url + url_end);
    let redlock = built(trusting(urls).ttl(TTL).max_hold(10 * TTL)).await;
    let nodes = clis(&servers);
    (servers, nodes, redlock)
}

/// Returns whether a holder learns within two seconds that its keys are lost.
async fn is_lost(guard: &LockGuard) -> bool {
    timeout(MS(2000), guard.lost()).await == Ok(LossReason::KeysLost)
}

#[tokio::test]
async fn a_holder_learns_of_a_loss_when_a_majority_of_servers_reports_it() {
    let (_servers, nodes, redlock) = five("?protocol=resp3").await;
    for (lock, command) in [
        (redlock.lock("k"), &["FLUSHALL"][..]),
        (redlock.lock("k"), &["DEL", "k"]),
        (redlock.lock("k"), &["SET", "k", "another client"]),
        (redlock.lock_all(["a", "b", "z"]), &["DEL", "b"]),
        (redlock.semaphore("s", 1).acquire(), &["DEL", "s:slot:0"]),
        (redlock.rw_lock("r").read(), &["FLUSHALL"]),
    ] {
        let guard = lock.await.unwrap();
        guard.extend().await.unwrap();
        each(&nodes[..3], command);
        assert!(is_lost(&guard).await, "{command:?}");
        each(&nodes, &["DEL", "k"]);
    }
}

/// Without reports, or before the first extension, a holder learns of it when it extends the lock.
#[tokio::test]
async fn without_reports_a_holder_does_not_learn_of_a_loss_before_its_next_extension() {
    for (url_end, is_extended) in [("?protocol=resp2", true), ("?protocol=resp3", false)] {
        let (_servers, nodes, redlock) = five(url_end).await;
        let guard = redlock.lock("k").await.unwrap();
        if is_extended {
            guard.extend().await.unwrap();
        }
        each(&nodes[..3], &["DEL", "k"]);
        assert!(!is_lost(&guard).await, "{url_end}");
    }
}

#[tokio::test]
async fn the_loss_of_a_minority_ends_nothing_and_extensions_report_nothing_to_their_own_client() {
    let (_servers, nodes, redlock) = five("?protocol=resp3").await;
    let guard = redlock.lock("k").await.unwrap();
    let other = redlock.lock("other").await.unwrap();
    for _ in 0..3 {
        guard.extend().await.unwrap();
        other.extend().await.unwrap();
    }
    // The slowest answers come after those of a majority.
    let scripts_run = || nodes.iter().map(|it| it.calls("evalsha")).sum::<u64>();
    eventually("all have answered", || scripts_run() >= 30).await;
    each(&nodes[..2], &["DEL", "k"]);
    tokio::time::sleep(MS(500)).await;
    assert_eq!(scripts_run(), 30, "no extension of its own");
    assert!(guard.is_valid());
    // The next extension puts the key back.
    guard.extend().await.unwrap();
    let value = Some(guard.value());
    let is_back = || nodes.iter().all(|it| it.get("k") == value);
    eventually("it is back", is_back).await;
}
