//! A waiter wakes when the lock is free, whichever client held it. Over real servers.
//!
//! Where a test asserts that a waiter was woken, the waiter's own next attempt would come only after the
//! minutes of [`seldom`]. No test takes that long.

use std::time::Duration;

use futures::future::join_all;
use redlock_kit::RedisServers;
use redlock_tokio::{Lock, LockError, LockGuard, LockOptions, ReleaseOutcome};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    fleet::{clients, clients_over, clis, each, fleet},
    support::{Cli, MS, eventually, states::is_refused},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Looks again after ten minutes at the earliest.
fn seldom() -> LockOptions {
    LockOptions::new().retry_delay(10 * MINUTE, 20 * MINUTE)
}

/// Waits for the lock, and does not try again by itself while a test lasts.
fn sleeper(lock: Lock) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = lock.wait(60 * MINUTE).options(seldom());
    tokio::spawn(lock.into_future())
}

async fn is_woken(waiting: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    let answer = timeout(Duration::from_secs(10), waiting).await;
    answer.expect("it is woken").unwrap().unwrap()
}

/// Waits until each server was probed this often. A probe makes the server send a notification when the
/// key changes.
async fn is_watched(nodes: &[Cli], probes: u64) {
    eventually("the key is probed", || {
        nodes.iter().all(|node| node.calls("pttl") >= probes)
    })
    .await;
}

#[tokio::test]
async fn a_foreign_delete_wakes_the_waiter() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    each(&nodes, &["SET", "k", "foreign"]);
    let waiting = sleeper(redlock.lock("k"));
    is_watched(&nodes, 1).await;
    assert_eq!(nodes[0].run(&["DEL", "k"]), "1");
    tokio::time::sleep(MS(200)).await;
    assert!(!waiting.is_finished(), "one of three is not enough");
    assert_eq!(nodes[1].run(&["DEL", "k"]), "1");
    drop(is_woken(waiting).await);
}

#[tokio::test]
async fn expiry_and_flushing_wake_the_waiter() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    each(&nodes, &["SET", "k", "foreign", "PX", "300"]);
    each(&nodes, &["SET", "other", "foreign"]);
    let waiting = [sleeper(redlock.lock("k")), sleeper(redlock.lock("other"))];
    is_watched(&nodes, 2).await;
    let [expires, stays] = waiting;
    drop(is_woken(expires).await);
    assert!(!stays.is_finished());
    assert_eq!(each(&nodes, &["FLUSHALL"]), ["OK"; 3]);
    drop(is_woken(stays).await);
}

/// Without notifications, a lock is tried again when its keys must have expired.
#[tokio::test]
async fn without_notifications_the_clock_wakes_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let [redlock] = clients_over(&servers, "?protocol=resp2").await;
    // Redis before 7.0 can only forbid the whole command.
    let forbidden = ["ACL", "SETUSER", "default", "-client"];
    each(&nodes, &["SET", "k", "foreign", "PX", "300"]);
    assert_eq!(each(&nodes, &forbidden), ["OK"; 3]);
    drop(is_woken(sleeper(redlock.lock("k"))).await);
    // The same holds for a user without the right to notifications.
    let [redlock] = clients(&servers).await;
    each(&nodes, &["SET", "k", "foreign", "PX", "300"]);
    drop(is_woken(sleeper(redlock.lock("k"))).await);
}

/// More waiters in a process do not cost more commands.
#[tokio::test]
async fn only_the_first_waiter_asks_the_nodes() {
    let (servers, [redlock, foreign]) = fleet(3).await;
    let node = Cli::of(servers.get(0));
    let mut costs = Vec::new();
    for waiters in [8, 128] {
        let guard = foreign.lock("k").await.unwrap();
        let before = node.calls("set") + node.calls("pttl");
        let entries = (0..waiters).map(|_| {
            let lock = redlock.lock("k").wait(MINUTE);
            async move { drop(lock.options(seldom()).await.unwrap()) }
        });
        let all = tokio::spawn(join_all(entries.collect::<Vec<_>>()));
        tokio::time::sleep(MS(100)).await;
        drop(guard);
        timeout(MINUTE, all).await.expect("all are served").unwrap();
        costs.push(node.calls("set") + node.calls("pttl") - before);
    }
    assert!(costs[1] <= costs[0] + 20, "{costs:?}");
}

/// One node reports a free key but refuses to set it, and another node keeps a foreign key. A waiter still
/// pauses between its attempts.
#[tokio::test]
async fn a_free_key_on_a_node_that_refuses_is_not_tried_without_a_pause() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    assert_eq!(nodes[0].run(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    nodes[1].set("k", "foreign");
    let error = redlock.lock("k").wait(MS(1500)).await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    let attempts = error.attempts().map(|it| it.count);
    assert!(attempts < Some(60), "{error}");
}

/// A server that once refused the client may speak RESP3 later.
#[tokio::test]
async fn a_node_that_once_refused_is_asked_for_resp3_again() {
    let (servers, [redlock]) = fleet(1).await;
    let node = Cli::of(servers.get(0));
    assert_eq!(node.run(&["CONFIG", "SET", "requirepass", "x"]), "OK");
    let admin = Cli::of(servers.get(0)).with(&["-a", "x", "--no-auth-warning"]);
    admin.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it is refused", || is_refused(&redlock, 0)).await;
    assert_eq!(admin.run(&["CONFIG", "SET", "requirepass", ""]), "OK");
    drop(redlock.lock("k").wait(MINUTE).await.unwrap());
    assert!(node.has_clients_of_resp3());
}

#[tokio::test]
async fn several_keys_are_locked_in_one_round_trip() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    // A session finds out once whether the server runs scripts.
    let at_connect: Vec<_> = nodes.iter().map(|node| node.calls("eval")).collect();
    let guard = redlock.lock_all(["b", "a"]).await.unwrap();
    let token = guard.value();
    for (node, at_connect) in nodes.iter().zip(at_connect) {
        eventually("both are set", || node.get("a").is_some()).await;
        assert_eq!(
            [node.get("a"), node.get("b")],
            [Some(token.clone()), Some(token.clone())]
        );
        let evals = node.calls("eval") - at_connect;
        assert_eq!((evals, node.calls("evalsha")), (1, 0));
    }
    guard.extend().await.unwrap();
    // This is how node-redlock acquires several resources.
    let theirs = "for _, key in ipairs(KEYS) do \
                    if redis.call('exists', key) == 1 then return 0 end \
                  end \
                  for _, key in ipairs(KEYS) do \
                    redis.call('set', key, ARGV[1], 'PX', ARGV[2]) \
                  end \
                  return #KEYS";
    let acquire = |node: &Cli| node.run(&["EVAL", theirs, "2", "b", "c", "foreign", "60000"]);
    for node in &nodes {
        assert_eq!(acquire(node), "0", "our lock excludes theirs");
    }
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    for node in &nodes {
        eventually("they are free", || node.get("a").is_none()).await;
        assert_eq!(acquire(node), "2");
    }
    // Their lock excludes ours until the last of its keys is gone.
    let waiting = sleeper(redlock.lock_all(["a", "b", "c"]));
    is_watched(&nodes, 3).await;
    each(&nodes, &["DEL", "b"]);
    tokio::time::sleep(MS(200)).await;
    assert!(!waiting.is_finished());
    each(&nodes, &["DEL", "c"]);
    let guard = is_woken(waiting).await;
    // Keys that a minority lost are set again.
    nodes[0].run(&["DEL", "a", "b", "c"]);
    guard.extend().await.unwrap();
    eventually("the key is repaired", || nodes[0].get("c").is_some()).await;
    drop(guard);
    redlock.shutdown(None).await;
    assert_eq!(each(&nodes, &["DBSIZE"]), ["0"; 3]);
}

/// The server sends a notification for each of three hundred keys. The waiter does not answer each of them
/// with a probe of all keys.
#[tokio::test]
async fn many_keys_are_probed_together() {
    const KEYS: u64 = 300;
    let (servers, [ours, theirs]) = fleet(3).await;
    let node = Cli::of(servers.get(0));
    let keys: Vec<String> = (0..KEYS).map(|index| index.to_string()).collect();
    let guard = theirs.lock_all(&keys).await.unwrap();
    let waiting = sleeper(ours.lock_all(&keys));
    is_watched(&clis(&servers), KEYS).await;
    let before = node.calls("pttl");
    for _ in 0..3 {
        guard.extend().await.unwrap();
        tokio::time::sleep(MS(50)).await;
    }
    drop(guard);
    drop(is_woken(waiting).await);
    let probes = (node.calls("pttl") - before) / KEYS;
    assert!(probes < 30, "{probes} probes of each key");
}
