//! Locks over a real group of sentinels: how the master is found, and what is refused.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redlock_kit::{Proxy, RedisServers, Sentinels};
use redlock_tokio::{BuildError, Durability, LockOptions, NodeState, Redlock, RedlockBuilder};

use crate::support::{self, Cli, MS, eventually, log::Log};

const TTL: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_millis(500);

/// Longer than an answer takes on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// The limit of `ready` on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn group() -> Sentinels {
    Sentinels::builder().replicas(1).spawn().unwrap()
}

fn url(name: &str, sentinels: &[&str]) -> String {
    format!("redis+sentinel://{}/{name}", sentinels.join(","))
}

/// Returns a builder of a client that waits as long as in production.
fn cautious(url: &str) -> RedlockBuilder {
    Redlock::builder()
        .nodes(url)
        .ttl(TTL)
        .confirmation_window(WINDOW)
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(Duration::from_secs(5))
}

fn trusting(url: &str) -> RedlockBuilder {
    cautious(url).durability(Durability::AssumedForTests)
}

async fn ready(builder: RedlockBuilder) -> Redlock {
    let redlock = builder.build().await.unwrap();
    redlock.ready(PATIENCE).await.unwrap();
    redlock
}

#[tokio::test]
async fn a_lock_is_acquired_extended_released_and_given_to_a_waiter() {
    let group = Sentinels::builder().replicas(1).password("of-servers");
    let group = group.sentinel_password("of/sentinels:@").spawn().unwrap();
    let builder = || {
        let options = LockOptions::new().ttl(TTL).retry_delay(MS(5000), MS(9000));
        let builder = Redlock::builder()
            .nodes([group.url()])
            .durability(Durability::AssumedForTests);
        builder
            .confirmation_window(WINDOW)
            .options(options)
            .node_timeout(NODE_TIMEOUT)
    };
    let (first, second) = (ready(builder()).await, ready(builder()).await);
    let reader = first.rw_lock("shared").read().await.unwrap();
    assert!(second.rw_lock("shared").try_read().await.is_ok());
    assert!(second.rw_lock("shared").try_write().await.is_err());
    reader.release().await;
    let guard = first.lock("k").await.unwrap();
    let cli = Cli::of(group.server(0)).with(&["-a", "of-servers", "--no-auth-warning"]);
    assert!(cli.get("k").is_some(), "the master has the key");
    guard.extend().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = second.lock("k").wait(PATIENCE).await.unwrap();
        (guard, Instant::now())
    });
    let is_tracked = || cli.run(&["INFO", "clients"]).contains("tracking_clients:");
    eventually("the waiter watches the key", is_tracked).await;
    let released = Instant::now();
    guard.release().await;
    let (guard, woken) = waiter.await.unwrap();
    assert!(woken - released < MS(4500), "by a notification");
    drop(guard);
    eventually("it is released", || cli.get("k").is_none()).await;
}

#[tokio::test]
async fn the_first_client_waits_and_the_next_one_does_not() {
    let group = group();
    let start = Instant::now();
    let first = cautious(&group.url()).build().await.unwrap();
    assert!(!matches!(first.nodes()[0].state, NodeState::Refused(_)));
    first.ready(PATIENCE).await.unwrap();
    let waited = start.elapsed();
    drop(first.lock("k").await.unwrap());

    let start = Instant::now();
    let second = ready(cautious(&group.url())).await;
    assert!(
        start.elapsed() < TTL + WINDOW,
        "{:?} after {waited:?}",
        start.elapsed()
    );
    drop(second.lock("k").await.unwrap());
    let markers = Cli::of(group.server(0)).run(&["KEYS", "redlock:*"]);
    assert_eq!(markers, "", "the sentinels tell the age");
}

#[tokio::test]
async fn sentinels_that_are_not_listed_are_asked_too() {
    let group = group();
    let only = group.addresses().pop().unwrap();
    let redlock = ready(trusting(&url(group.name(), &[&only]))).await;
    group.sentinel(2).kill();
    tokio::time::sleep(2 * WINDOW).await;
    redlock.ready(PATIENCE).await.expect("by the two others");
    // A new client that knows none of these two cannot find them.
    let only = group.addresses().pop().unwrap();
    let blind = trusting(&url(group.name(), &[&only]))
        .build()
        .await
        .unwrap();
    let error = blind.try_lock("k").await.unwrap_err().to_string();
    assert!(error.contains(&only), "{error}");
    drop(redlock.lock("k").await.unwrap());
}

#[tokio::test]
async fn an_order_to_fail_over_is_followed() {
    let group = Arc::new(group());
    let redlock = ready(trusting(&group.url())).await;
    drop(redlock.lock("k").await.unwrap());
    let ordered = Arc::clone(&group);
    let new = tokio::task::spawn_blocking(move || ordered.fail_over().unwrap());
    let new = new.await.unwrap();
    let cli = Cli::of(group.server(new));
    let locks_there = || async {
        let guard = redlock.lock("k").wait(Duration::ZERO).await;
        guard.is_ok_and(|_guard| cli.get("k").is_some())
    };
    let deadline = Instant::now() + PATIENCE;
    while !locks_there().await {
        assert!(Instant::now() < deadline, "{:?}", redlock.nodes());
        tokio::time::sleep(MS(20)).await;
    }
}

#[tokio::test]
async fn what_must_be_changed_is_said_by_name() {
    let group = Sentinels::builder()
        .replicas(1)
        .sentinel_password("pw")
        .spawn()
        .unwrap();
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0).address().to_string();
    let sentinel = group.addresses().remove(0);
    let addresses = group.addresses();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let known = url(group.name(), &addresses);
    let wrong = format!("{known}?sentinel_password=wrong");
    let unknown = url("other", &addresses) + "?sentinel_password=pw";
    for (url, words) in [
        (known, &["asks for a password", &sentinel][..]),
        (wrong, &[&sentinel]),
        (unknown, &["no group `other`", &sentinel]),
        (url(group.name(), &[&server]), &["not a sentinel", &server]),
    ] {
        let error = assert_refused!(trusting(&url).build().await, BuildError::Refused { .. });
        let text = error.to_string();
        assert!(
            words.iter().all(|it| text.contains(*it)),
            "{words:?}: {text}"
        );
        assert!(!text.contains("wrong"), "{text}");
    }
    let plain = format!("redis://:pw@{sentinel}");
    let error = support::trusting([plain]).build().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("redis+sentinel://"), "{text}");
    assert!(text.contains(&sentinel), "{text}");
}

#[tokio::test]
async fn the_log_tells_a_silent_sentinel_from_one_that_names_no_master() {
    let (log, _guard) = Log::start();
    let group = Sentinels::spawn().unwrap();
    let answering = group.addresses().remove(0);
    let silent = "127.0.0.1:1";
    let unknown = url("other", &[&answering, silent]);
    let redlock = trusting(&unknown).build().await.unwrap();
    let has = |words: &str, address: &str| {
        let sentinel = format!("sentinel={address}");
        let text = log.text();
        text.lines()
            .any(|it| it.contains(words) && it.split_whitespace().any(|word| word == sentinel))
    };
    eventually("both are logged", || {
        has("a sentinel answers, but names no master", &answering)
            && has("a sentinel does not answer", silent)
    })
    .await;
    let port = group.server(0).address().port().to_string();
    let monitor = ["SENTINEL", "MONITOR", "other", "127.0.0.1", &port, "1"];
    assert_eq!(Cli::of(group.sentinel(0)).run(&monitor), "OK");
    eventually("the end is logged", || {
        has("a sentinel names the master again", &answering)
    })
    .await;
    drop(redlock);
}

#[tokio::test]
async fn announced_addresses_can_be_mapped() {
    let group = group();
    let published: Vec<_> = (0..group.server_count())
        .map(|number| {
            let announced = group.server_proxy(number).address().to_string();
            let proxy = Proxy::spawn(group.server(number).address()).unwrap();
            (announced, proxy)
        })
        .collect();
    // The announced addresses of the servers lead nowhere.
    for number in 0..group.server_count() {
        group.server_proxy(number).refuse();
    }
    let nowhere = cautious(&group.url()).connect_timeout(MS(1000));
    let nowhere = nowhere.build().await.unwrap();
    let state = &nowhere.nodes()[0].state;
    assert!(matches!(state, NodeState::Reconnecting(_)), "{state}");
    let master = format!("not connected: {}: ", published[0].0);
    assert!(state.to_string().starts_with(&master), "{state}");
    let map: Vec<_> = published
        .iter()
        .map(|(announced, proxy)| (announced.clone(), proxy.address().to_string()))
        .collect();
    let mapped = trusting(&group.url()).map_addresses(move |announced| {
        let pair = map.iter().find(|(from, _)| from == announced);
        pair.map(|(_, to)| to.clone())
    });
    let redlock = ready(mapped).await;
    drop(redlock.lock("k").await.unwrap());
    let wrong = trusting(&group.url()).map_addresses(|_| Some("no port".into()));
    let wrong = wrong.build().await.unwrap_err().to_string();
    assert!(wrong.contains("`no port`"), "{wrong}");
}

#[tokio::test]
async fn resp2_is_enough() {
    let group = group();
    let redlock = ready(trusting(&(group.url() + "?protocol=resp2"))).await;
    let guard = redlock.lock("k").await.unwrap();
    guard.extend().await.unwrap();
    guard.release().await;
}

#[tokio::test]
async fn two_groups_with_one_server_are_one_vote() {
    let group = group();
    let both = [group.url(), group.server(0).url()];
    let builder = Redlock::builder()
        .nodes(both)
        .durability(Durability::AssumedForTests);
    let builder = builder.ttl(TTL).confirmation_window(WINDOW);
    let error = builder
        .connect_timeout(Duration::from_secs(5))
        .build()
        .await;
    assert_refused!(error, BuildError::SameServer { .. });
}
