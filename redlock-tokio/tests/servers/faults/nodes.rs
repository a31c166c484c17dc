//! The fault matrix, rows 1 to 6, 11, 12, 29 and 32: nodes that are down, stopped, slow, far away or
//! full.

use std::time::{Duration, Instant};

use redlock_kit::{Proxy, RedisServers};
use redlock_tokio::{LockError, LockGuard, NodeState, Redlock};

use crate::{
    fleet::fleet,
    support::{
        Cli, MS, assert_says,
        bed::Bed,
        built, eventually, spawn_unprotected,
        states::{is_reconnecting, state, votes, voting},
        trusting, unrenewed,
    },
};

/// So long that a lock that waited for a failed node would be noticed.
const PATIENCE: Duration = Duration::from_secs(4);

/// Locks and releases ten times, and returns the time of the slowest lock.
async fn slowest_of_ten(redlock: &Redlock) -> Duration {
    let mut slowest = Duration::ZERO;
    for number in 0..10 {
        let before = Instant::now();
        let guard = redlock.lock(format!("k{number}")).await.expect("a quorum");
        slowest = slowest.max(before.elapsed());
        guard.release().await;
    }
    slowest
}

#[tokio::test]
async fn row_01_one_node_down() {
    let bed = Bed::new(3);
    let redlock = built(bed.servers.builder().node_timeout(PATIENCE)).await;
    bed.servers.get(0).kill();
    assert!(slowest_of_ten(&redlock).await < PATIENCE / 2);
    eventually("it is known to be down", || is_reconnecting(&redlock, 0)).await;
    bed.servers.get(0).restart().unwrap();
    voting(&redlock, 0).await;
}

/// The third node had the key of another client for a moment when the lock was acquired.
#[tokio::test]
async fn row_01_one_node_down_after_another_client_had_the_key_on_the_third() {
    let (servers, [redlock]) = fleet(3).await;
    let third = Cli::of(servers.get(2));
    third.set("k", "another client's");
    let guard = redlock.lock("k").await.expect("two of three");
    servers.get(1).kill();
    third.run(&["DEL", "k"]);
    is_kept(&guard, &third).await;
}

/// The third node was down when the lock was acquired, and lacks the key since. A lock that is not renewed is kept, too,
/// if its holder extends it.
#[tokio::test]
async fn row_01_one_node_down_after_the_third_came_back_without_the_key() {
    let (servers, [redlock]) = fleet(3).await;
    servers.get(2).kill();
    eventually("it is known to be down", || !votes(&redlock, 2)).await;
    let guard = unrenewed(redlock.lock("k")).await;
    servers.get(2).restart().unwrap();
    voting(&redlock, 2).await;
    servers.get(1).kill();
    is_kept(&guard, &Cli::of(servers.get(2))).await;
}

/// Extends the lock until the third node votes for it, which now has the key.
async fn is_kept(guard: &LockGuard, third: &Cli) {
    while let Err(error) = guard.extend().await {
        assert!(guard.is_valid(), "{error}");
        tokio::time::sleep(MS(20)).await;
    }
    assert_eq!(third.get("k"), Some(guard.value()));
}

#[tokio::test]
async fn row_02_majority_down() {
    let (servers, [redlock]) = fleet(3).await;
    servers.get(0).kill();
    servers.get(1).kill();
    let before = Instant::now();
    let error = redlock.lock("k").wait(MS(400)).await.unwrap_err();
    let LockError::NoQuorum(attempts) = &error else {
        panic!("{error}");
    };
    assert!(attempts.count > 1, "it tried again: {error}");
    let took = before.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    for server in [servers.get(0), servers.get(1)] {
        assert_says(&error, &server.address().to_string());
    }
    let node = Cli::of(servers.get(2));
    eventually("no key is left", || node.get("k").is_none()).await;
}

#[tokio::test]
async fn row_03_node_frozen_socket_open() {
    let servers = RedisServers::spawn(3).unwrap();
    let redlock = built(servers.builder().node_timeout(PATIENCE / 2)).await;
    servers.get(0).freeze();
    assert!(slowest_of_ten(&redlock).await < PATIENCE / 2);
    let is_silent = || state(&redlock, 0) == NodeState::Silent;
    eventually("it is known to be silent", is_silent).await;
    assert!(slowest_of_ten(&redlock).await < PATIENCE / 2);
    servers.get(0).thaw();
    voting(&redlock, 0).await;
    let node = Cli::of(servers.get(0));
    eventually("its releases have arrived", || node.run(&["DBSIZE"]) == "0").await;
}

#[tokio::test]
async fn row_04_connect_black_hole() {
    let bed = Bed::new(3);
    let proxy = &bed.proxies[0];
    proxy.ignore();
    let before = Instant::now();
    let redlock = built(bed.builder().connect_timeout(PATIENCE / 2)).await;
    assert!(before.elapsed() < PATIENCE, "{:?}", before.elapsed());
    assert!(slowest_of_ten(&redlock).await < PATIENCE / 2);
    assert!(is_reconnecting(&redlock, 0));
    assert_says(&state(&redlock, 0), "no connection within 2s");
    proxy.heal();
    voting(&redlock, 0).await;
}

#[tokio::test]
async fn row_05_half_open_after_connect() {
    let bed = Bed::new(3);
    let redlock = bed.redlock().await;
    let proxy = &bed.proxies[0];
    let connections = proxy.accepted();
    proxy.requests().lose();
    proxy.replies().lose();
    assert!(slowest_of_ten(&redlock).await < MS(250));
    assert!(proxy.requests().lost() > 0, "requests were lost");
    proxy.heal();
    eventually("it is replaced", || proxy.accepted() > connections).await;
    voting(&redlock, 0).await;
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_06_reset_mid_request() {
    let bed = Bed::new(3);
    let redlock = bed.redlock().await;
    let proxy = &bed.proxies[0];
    proxy.replies().hold();
    let guard = redlock.lock("k").await.expect("two of three");
    eventually("the key is set", || bed.cli(0).get("k").is_some()).await;
    eventually("its answer is under way", || proxy.replies().waiting() > 0).await;
    proxy.reset();
    proxy.heal();
    drop(guard);
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_11_slow_node() {
    let bed = Bed::new(3);
    let redlock = built(bed.builder().node_timeout(PATIENCE)).await;
    bed.proxies[0].replies().delay(MS(600));
    assert!(slowest_of_ten(&redlock).await < MS(600));
    let slow = || redlock.nodes()[0].round_trip >= Some(MS(600));
    eventually("it is slow, and answers", slow).await;
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_12_reply_at_the_edge_of_validity() {
    let bed = Bed::new(3);
    let redlock = built(bed.builder().node_timeout(PATIENCE)).await;
    for proxy in &bed.proxies {
        proxy.replies().delay(MS(500));
    }
    let before = Instant::now();
    let outcome = redlock.lock("k").ttl(MS(400)).wait(MS(0)).await;
    assert_refused!(outcome, LockError::TooSlow(_));
    assert!(before.elapsed() >= MS(300), "{:?}", before.elapsed());
    assert!(bed.cli(0).calls("set") > 0, "it was asked");
    // This ttl leaves enough time for the answer.
    let guard = redlock.lock("k").ttl(MS(3000)).await.expect("in time");
    assert!(guard.remaining() < MS(2600), "{:?}", guard.remaining());
    drop(guard);
    bed.no_key_is_left().await;
}

#[tokio::test]
async fn row_29_client_pause_and_debug_sleep() {
    let servers = spawn_unprotected(3, &[]);
    let redlock = built(servers.builder().node_timeout(MS(700))).await;
    let node = Cli::of(servers.get(0));
    assert_eq!(node.run(&["CLIENT", "PAUSE", "2000", "WRITE"]), "OK");
    assert!(slowest_of_ten(&redlock).await < MS(350));
    eventually("it was silent", || state(&redlock, 0) == NodeState::Silent).await;
    voting(&redlock, 0).await;

    let sleeper = tokio::task::spawn_blocking(move || node.run(&["DEBUG", "SLEEP", "2"]));
    let asleep = async || {
        let lock = redlock.lock("asleep").await;
        drop(lock.expect("two of three"));
        state(&redlock, 0) == NodeState::Silent
    };
    while !asleep().await {
        tokio::task::yield_now().await;
    }
    assert!(slowest_of_ten(&redlock).await < MS(350));
    assert_eq!(sleeper.await.unwrap(), "OK");
    voting(&redlock, 0).await;
    let node = Cli::of(servers.get(0));
    eventually("its releases have arrived", || node.run(&["DBSIZE"]) == "0").await;
}

#[tokio::test]
async fn row_32_maxclients() {
    let servers = RedisServers::spawn_with(1, &["--maxclients", "1"]).unwrap();
    let others = RedisServers::spawn(2).unwrap();
    // This client holds the only connection that the first node accepts.
    let place = Proxy::spawn(servers.get(0).address()).unwrap();
    let holder = built(trusting([place.url()])).await;
    assert!(votes(&holder, 0));

    let urls = [servers.urls(), others.urls()].concat();
    let redlock = built(trusting(urls)).await;
    drop(redlock.lock("k").await.expect("two of three"));
    // The node sends an error and closes the connection. The client notices either of the two.
    assert!(is_reconnecting(&redlock, 0), "{}", state(&redlock, 0));
    place.refuse();
    place.reset();
    voting(&redlock, 0).await;
}
