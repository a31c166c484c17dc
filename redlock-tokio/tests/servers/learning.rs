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

struct Scene {
    _servers: RedisServers,
    clis: Vec<Cli>,
    redlock: Redlock,
}

impl Scene {
    /// Five servers, and a client whose URLs end like this.
    async fn new(url_end: &str) -> Self {
        let servers = RedisServers::spawn(5).unwrap();
        let urls = servers.urls().into_iter().map(|url| url + url_end);
        Self {
            clis: clis(&servers),
            redlock: built(trusting(urls).ttl(TTL).max_hold(10 * TTL)).await,
            _servers: servers,
        }
    }

    /// Does this on a majority of the servers. Returns whether the holder learns of it.
    async fn is_learned(&self, command: &[&str], guard: LockGuard) -> bool {
        each(&self.clis[..3], command);
        is_lost(&guard).await
    }

    fn scripts_run(&self) -> u64 {
        self.clis.iter().map(|cli| cli.calls("evalsha")).sum()
    }
}

/// Returns whether a holder learns within two seconds that its keys are lost.
async fn is_lost(guard: &LockGuard) -> bool {
    timeout(MS(2000), guard.lost()).await == Ok(LossReason::KeysLost)
}

#[tokio::test]
async fn a_holder_learns_of_a_loss_when_a_majority_of_servers_reports_it() {
    let scene = Scene::new("?protocol=resp3").await;
    let redlock = &scene.redlock;
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
        assert!(scene.is_learned(command, guard).await, "{command:?}");
        each(&scene.clis, &["DEL", "k"]);
    }
}

/// Without reports, or before the first extension, a holder learns of it when it extends the lock.
#[tokio::test]
async fn without_reports_a_holder_does_not_learn_of_a_loss_before_its_next_extension() {
    let scene = Scene::new("?protocol=resp2").await;
    let guard = scene.redlock.lock("k").await.unwrap();
    guard.extend().await.unwrap();
    assert!(!scene.is_learned(&["DEL", "k"], guard).await, "RESP2");

    let scene = Scene::new("?protocol=resp3").await;
    let guard = scene.redlock.lock("k").await.unwrap();
    assert!(!scene.is_learned(&["DEL", "k"], guard).await, "short");
}

#[tokio::test]
async fn the_loss_of_a_minority_ends_nothing_and_extensions_report_nothing_to_their_own_client() {
    let scene = Scene::new("?protocol=resp3").await;
    let guard = scene.redlock.lock("k").await.unwrap();
    let other = scene.redlock.lock("other").await.unwrap();
    for _ in 0..3 {
        guard.extend().await.unwrap();
        other.extend().await.unwrap();
    }
    // The slowest answers come after those of a majority.
    eventually("all have answered", || scene.scripts_run() >= 30).await;
    each(&scene.clis[..2], &["DEL", "k"]);
    tokio::time::sleep(MS(500)).await;
    assert_eq!(scene.scripts_run(), 30, "no extension of its own");
    assert!(guard.is_valid());
    // The next extension puts the key back.
    guard.extend().await.unwrap();
    let value = Some(guard.value());
    let is_back = || scene.clis.iter().all(|cli| cli.get("k") == value);
    eventually("it is back", is_back).await;
}
