//! A waiter wakes when the lock is free, whichever client held it. Over real servers.
//!
//! Where a test asserts that a waiter was woken, the waiter's own next attempt would come only after minutes. No test
//! takes that long.

use std::time::Duration;

use redlock_kit::RedisServers;

use crate::{
    fleet::{clients, clients_over, clis, each, fleet},
    support::{Cli, MS, asleep_at, eventually, states::is_refused, woken},
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn expiry_and_flushing_wake_the_waiter() {
    let (servers, [redlock]) = fleet(3).await;
    let nodes = clis(&servers);
    each(&nodes, &["SET", "other", "foreign"]);
    let stays = asleep_at(&nodes, redlock.lock("other")).await;
    each(&nodes, &["SET", "k", "foreign", "PX", "3000"]);
    let expires = asleep_at(&nodes, redlock.lock("k")).await;
    drop(woken(expires).await);
    assert!(!stays.is_finished());
    assert_eq!(each(&nodes, &["FLUSHALL"]), ["OK"; 3]);
    drop(woken(stays).await);
}

/// Without notifications, a lock is tried again when its keys must have expired.
#[tokio::test]
async fn without_notifications_the_clock_wakes_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    let [redlock] = clients_over(&servers, "?protocol=resp2").await;
    // Redis before 7.0 can only forbid the whole command.
    let forbidden = ["ACL", "SETUSER", "default", "-client"];
    each(&nodes, &["SET", "k", "foreign", "PX", "3000"]);
    assert_eq!(each(&nodes, &forbidden), ["OK"; 3]);
    drop(woken(asleep_at(&nodes, redlock.lock("k")).await).await);
    // The same holds for a user without the right to notifications.
    let [redlock] = clients(&servers).await;
    each(&nodes, &["SET", "k", "foreign", "PX", "3000"]);
    drop(woken(asleep_at(&nodes, redlock.lock("k")).await).await);
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

/// The server sends a notification for each of three hundred keys. The waiter does not answer each of them
/// with a probe of all keys.
#[tokio::test]
async fn many_keys_are_probed_together() {
    const KEYS: u64 = 300;
    let (servers, [ours, theirs]) = fleet(3).await;
    let node = Cli::of(servers.get(0));
    let keys: Vec<String> = (0..KEYS).map(|index| index.to_string()).collect();
    let guard = theirs.lock_all(&keys).await.unwrap();
    let waiting = asleep_at(&clis(&servers), ours.lock_all(&keys)).await;
    let before = node.calls("pttl");
    for _ in 0..3 {
        guard.extend().await.unwrap();
        tokio::time::sleep(MS(50)).await;
    }
    drop(guard);
    drop(woken(waiting).await);
    let probes = (node.calls("pttl") - before) / KEYS;
    assert!(probes < 30, "{probes} probes of each key");
}
