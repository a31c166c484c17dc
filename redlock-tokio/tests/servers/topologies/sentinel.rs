//! Locks over a real group of sentinels: how the master is found, and what is refused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock_kit::{Proxy, RedisServers, Sentinels};
use redlock_tokio::{BuildError, Durability, NodeState, RedlockBuilder};

use super::{ready, sentinels_url};
use crate::support::{
    self, Cli, MS, assert_says, built, eventually,
    fake::{Act, Fake},
    log::Log,
    shards::strict,
};

const TTL: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_millis(500);

fn group() -> Sentinels {
    Sentinels::builder().replicas(1).spawn().unwrap()
}

/// Returns a builder of a client that waits as long as in production.
fn cautious(url: &str) -> RedlockBuilder {
    strict(url).ttl(TTL).confirmation_window(WINDOW)
}

fn trusting(url: &str) -> RedlockBuilder {
    cautious(url).durability(Durability::AssumedForTests)
}

#[tokio::test]
async fn the_first_client_waits_and_the_next_one_does_not() {
    let group = group();
    let first = ready(cautious(&group.url())).await;
    drop(first.lock("k").await.unwrap());

    let start = Instant::now();
    let second = ready(cautious(&group.url())).await;
    let waited = start.elapsed();
    assert!(waited < TTL + WINDOW, "{waited:?}");
    drop(second.lock("k").await.unwrap());
    let markers = Cli::of(group.server(0)).run(&["KEYS", "redlock:*"]);
    assert_eq!(markers, "", "the sentinels tell the age");
}

#[tokio::test]
async fn sentinels_that_are_not_listed_are_asked_too() {
    let group = group();
    let only = group.addresses().pop().unwrap();
    let redlock = ready(trusting(&sentinels_url(Sentinels::NAME, &[&only]))).await;
    group.sentinel(2).kill();
    tokio::time::sleep(2 * WINDOW).await;
    let others = redlock.ready(Duration::from_secs(20)).await;
    others.expect("by the two others");
    // A new client that knows none of these two cannot find them.
    let only = group.addresses().pop().unwrap();
    let blind = built(trusting(&sentinels_url(Sentinels::NAME, &[&only]))).await;
    assert_says(&blind.try_lock("k").await.unwrap_err(), &only);
    drop(redlock.lock("k").await.unwrap());
}

/// A sentinel that publishes switches without end makes the client ask more often, but not without end.
#[tokio::test]
async fn a_flood_of_switches_is_no_flood_of_questions() {
    let group = group();
    let switch = b">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n";
    let flood = Fake::at(&["SUBSCRIBE"], &[Act::Repeat(MS(1), switch.to_vec())]);
    let all = [group.addresses(), vec![flood.address()]].concat();
    let redlock = ready(trusting(&sentinels_url(Sentinels::NAME, &all))).await;
    let commands = || {
        let stats = Cli::of(group.sentinel(0)).run(&["INFO", "stats"]);
        let mut lines = stats.lines();
        let count = lines.find_map(|it| it.strip_prefix("total_commands_processed:"));
        count.expect("INFO has it").parse::<u128>().unwrap()
    };
    let (before, time) = (commands(), Duration::from_secs(2));
    tokio::time::sleep(time).await;
    // Each question has three parts. The sentinels talk to each other, too.
    let most = 10 * 3 * time.as_millis() / (WINDOW / 3).as_millis() + 200;
    let commands = commands() - before;
    assert!(commands < most, "{commands} in {time:?}");
    assert!(flood.streamed() > 0, "there was a flood");
    drop(redlock.lock("k").await.unwrap());
}

#[tokio::test]
async fn what_must_be_changed_is_said_by_name() {
    let group = Sentinels::builder().replicas(1).password("of-servers");
    let group = group.sentinel_password("of/sentinels:@").spawn().unwrap();
    drop(ready(trusting(&group.url())).await.lock("k").await.unwrap());
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0).address().to_string();
    let addresses = group.addresses();
    let sentinel = &addresses[0];
    let known = sentinels_url(Sentinels::NAME, &addresses);
    let wrong = format!("{known}?sentinel_password=wrong");
    let unknown = group.url().replace(Sentinels::NAME, "other");
    let other = sentinels_url(Sentinels::NAME, &[&server]);
    for (url, words) in [
        (known, &["asks for a password", sentinel][..]),
        (wrong, &[sentinel]),
        (unknown, &["no group `other`", sentinel]),
        (other, &["not a sentinel", &server]),
    ] {
        let error = assert_refused!(trusting(&url).build().await, BuildError::Refused { .. });
        words.iter().for_each(|it| assert_says(&error, it));
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let master = group.server(0).url().replace("://", "://:of-servers@");
    let twice = trusting(&format!("{},{master}", group.url()));
    assert_refused!(twice.build().await, BuildError::SameServer { .. });
    let plain = format!("redis://:of%2Fsentinels%3A%40@{sentinel}");
    let error = support::trusting([plain]).build().await.unwrap_err();
    assert_says(&error, "redis+sentinel://");
    assert_says(&error, sentinel);
}

#[tokio::test]
async fn the_log_tells_a_silent_sentinel_from_one_that_names_no_master() {
    let (log, _guard) = Log::start();
    let group = Sentinels::spawn().unwrap();
    let answering = group.addresses().remove(0);
    let silent = "127.0.0.1:1";
    let unknown = sentinels_url("other", &[&answering, silent]);
    let _redlock = built(trusting(&unknown)).await;
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
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let nowhere = cautious(&group.url()).map_addresses(move |_| {
        count.fetch_add(1, SeqCst);
        None
    });
    let nowhere = built(nowhere.connect_timeout(MS(1000))).await;
    tokio::time::sleep(MS(1000)).await;
    let asked = asked.load(SeqCst);
    assert!(asked < 500, "{asked} attempts: there are pauses");
    let state = nowhere.nodes()[0].state.clone();
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
}
