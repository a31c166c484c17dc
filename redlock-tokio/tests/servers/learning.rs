//! Holders learn that their keys are gone when the servers report it, and not only at the next renewal.

use std::time::{Duration, Instant};

use redlock_kit::RedisServers;
use redlock_tokio::{LockGuard, LockOptions, LossReason, Redlock};
use tokio::time::timeout;

use crate::support::{Cli, MS, eventually, trusting};

/// So that the next renewal, after a third of it, is far away.
const TTL: Duration = Duration::from_secs(60);

struct Scene {
    servers: RedisServers,
    clis: Vec<Cli>,
    redlock: Redlock,
}

impl Scene {
    /// Five servers, and a client whose URLs end like this.
    async fn new(url_end: &str) -> Self {
        let servers = RedisServers::spawn(5).unwrap();
        let urls = servers.urls().into_iter().map(|url| url + url_end);
        let redlock = trusting(urls).ttl(TTL).max_hold(10 * TTL).build().await;
        Self {
            clis: servers.iter().map(Cli::of).collect(),
            redlock: redlock.unwrap(),
            servers,
        }
    }

    /// Does this on a majority of the servers. Returns how long it took the holder to learn of it, if it did within two
    /// seconds.
    async fn after(&self, command: &[&str], guard: LockGuard) -> Option<Duration> {
        for cli in &self.clis[..3] {
            cli.run(command);
        }
        let changed = Instant::now();
        let lost = timeout(MS(2000), guard.lost()).await;
        let took = changed.elapsed();
        let reason = lost.ok()?;
        assert_eq!(reason, LossReason::KeysLost);
        println!("{command:?}: known after {took:?}");
        Some(took)
    }

    fn scripts_run(&self) -> u64 {
        self.clis.iter().map(|cli| cli.calls("evalsha")).sum()
    }
}

#[tokio::test]
async fn a_holder_learns_of_a_loss_when_a_majority_of_servers_reports_it() {
    let scene = Scene::new("?protocol=resp3").await;
    for command in [
        &["FLUSHALL"][..],
        &["DEL", "k"],
        &["SET", "k", "another client"],
    ] {
        let guard = scene.redlock.lock("k").await.unwrap();
        guard.extend().await.unwrap();
        assert!(scene.after(command, guard).await.is_some(), "{command:?}");
        scene.clis.iter().for_each(|cli| _ = cli.run(&["DEL", "k"]));
    }
    let several = scene.redlock.lock_all(["a", "k", "z"]).await.unwrap();
    several.extend().await.unwrap();
    assert!(scene.after(&["DEL", "k"], several).await.is_some());

    let permit = scene.redlock.semaphore("s", 1).acquire().await.unwrap();
    permit.extend().await.unwrap();
    assert!(scene.after(&["DEL", "s:slot:0"], permit).await.is_some());

    let reader = scene.redlock.rw_lock("r").read().await.unwrap();
    reader.extend().await.unwrap();
    assert!(scene.after(&["FLUSHALL"], reader).await.is_some());
}

/// Without reports, or before the first extension, a holder learns of it when it extends the lock.
#[tokio::test]
async fn without_reports_a_holder_does_not_learn_of_a_loss_before_its_next_extension() {
    let scene = Scene::new("?protocol=resp2").await;
    let guard = scene.redlock.lock("k").await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(scene.after(&["DEL", "k"], guard).await, None, "RESP2");

    let scene = Scene::new("?protocol=resp3").await;
    let guard = scene.redlock.lock("k").await.unwrap();
    assert_eq!(scene.after(&["DEL", "k"], guard).await, None, "short");
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
    for cli in &scene.clis[..2] {
        cli.run(&["DEL", "k"]);
    }
    tokio::time::sleep(MS(500)).await;
    assert_eq!(scene.scripts_run(), 30, "no extension of its own");
    assert!(guard.is_valid());
    // The next extension puts the key back.
    guard.extend().await.unwrap();
    let value = guard.value();
    let is_back = || {
        scene
            .clis
            .iter()
            .all(|cli| cli.get("k").as_ref() == Some(&value))
    };
    eventually("it is back", is_back).await;
    drop((guard, other));
    scene.redlock.shutdown(None).await;
    drop(scene.servers);
}

/// A server does not notify the connection that has made a change.
#[tokio::test]
async fn a_process_learns_of_the_locks_that_it_frees_by_force() {
    let scene = Scene::new("?protocol=resp3").await;
    let free = async |by: &Redlock, key: &str| {
        let inspection = by.inspect(key).await.unwrap();
        by.force_unlock(&inspection).await;
    };
    let guard = scene.redlock.lock("k").await.unwrap();
    free(&scene.redlock, "k").await;
    let lost = timeout(MS(2000), guard.lost()).await;
    assert_eq!(lost, Ok(LossReason::KeysLost));

    let other = scene.servers.builder().max_ttl(TTL).build();
    let other = other.await.unwrap();
    let _held = other.lock("k").ttl(TTL).await.unwrap();
    let seldom = LockOptions::new().retry_delay(TTL, 2 * TTL).wait(TTL);
    let looks = || scene.clis.iter().map(|cli| cli.calls("pttl"));
    let before: Vec<_> = looks().collect();
    let waiting = tokio::spawn(scene.redlock.lock("k").options(seldom).into_future());
    let has_looked = || looks().zip(&before).all(|(now, before)| now > *before);
    eventually("it looks at the key", has_looked).await;
    free(&scene.redlock, "k").await;
    let woken = timeout(MS(2000), waiting).await;
    drop(woken.expect("it is woken").unwrap().unwrap());
}

/// The process that keeps it would find it held for 50 seconds.
#[tokio::test]
async fn a_process_learns_that_a_lock_is_freed_that_it_keeps() {
    let scene = Scene::new("?protocol=resp3").await;
    let other = scene.servers.builder().build().await.unwrap();
    let guard = scene.redlock.lock("k").await.unwrap();
    guard.release_after(TTL - MS(10_000)).await.unwrap();
    eventually("it is checked", || scene.scripts_run() >= 5).await;
    let inspection = other.inspect("k").await.unwrap();
    other.force_unlock(&inspection).await;
    eventually("it has ended", || scene.redlock.held().is_empty()).await;
    drop(scene.redlock.try_lock("k").await.unwrap());
}
