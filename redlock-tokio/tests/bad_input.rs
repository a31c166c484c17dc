//! Bad input gives a typed error or a defined outcome, and neither a panic nor an endless loop.

#[macro_use]
#[path = "support/refused.rs"]
mod refused;
mod support;

use std::time::{Duration, Instant};

use futures::StreamExt;
use redlock_kit::{RedisServers, SpawnError};
use redlock_tokio::{
    BuildError, ExtendError, Key, LockError, LockOptions, LossReason, MemoryNode, Redlock,
    ReleaseOutcome, Verdict,
    errors::{KeyError, OptionsError},
};
use support::{
    MS, acquired, assert_says, built,
    in_memory::{embedded, over, runtime, three_nodes},
};

async fn build(urls: &[&str]) -> BuildError {
    Redlock::connect(urls).await.expect_err("a refusal")
}

#[tokio::test]
async fn no_nodes_and_more_than_64_nodes_are_refused() {
    assert_eq!(
        build(&[]).await.to_string(),
        "no nodes given: a lock needs at least one"
    );
    let urls: Vec<String> = (0..65)
        .map(|port| format!("redis://host:{}", 7000 + port))
        .collect();
    let error = Redlock::connect(&urls).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "65 nodes given: at most 64 are supported"
    );
    let nodes = (0..64).map(|_| MemoryNode::new());
    for nodes in [nodes.collect(), vec![MemoryNode::new()]] {
        let redlock = built(Redlock::builder().custom_nodes(nodes)).await;
        assert!(redlock.lock("k").await.is_ok());
    }
}

/// Each URL stands behind a good one, and may have a secret.
#[tokio::test]
async fn an_invalid_url_is_named_by_its_position_and_not_repeated() {
    let long = format!("redis+cluster://a?tags={}", "x".repeat(65));
    for (url, words) in [
        ("", "scheme"),
        ("http://hunter2@host", "in front of `://` is unknown"),
        ("redis+sentinels://hunter2@host/g", "the scheme in front"),
        ("redis://:a,hunter2@host", "%2C for a comma"),
        ("redis://:hunter2@", ""),
        ("redis://:hunter2@host/x", ""),
        ("redis://:hunter2@host/-1", "the database is not a number"),
        ("redis://:hunter2@host/99999999999", "0 to 2147483646"),
        ("unix:///a.sock?db=-1&pass=hunter2", "the database"),
        ("redis+sentinel://:hunter2@s1/g/4294967295", "the database"),
        ("redis://:hunter2@host:port", ""),
        ("redis://:hunter2@0.0.0.0", ""),
        ("redis://:p@hunter2#w@127.0.0.1", "%23"),
        ("redis://", "expected redis://"),
        ("redis://me:1234/hunter2@host", "%2F"),
        ("redis://me:1234?hunter2@host", "%3F"),
        ("redis://:hunter2@a?db=1", "protocol=resp2"),
        ("redis://a?protocol=resp3&voters=hunter2", "protocol=resp2"),
        ("unix:///a.sock?db=1&password=hunter2", "db, user and pass"),
        ("redis+cluster://", "seed 1"),
        ("redis+cluster://a,:1", "seed 2"),
        ("redis+cluster://a,A:6379", "seed 2: it is given twice"),
        ("redis+cluster://a:hunter2@b:port,c", "seed 1"),
        ("redis+cluster://a/1", "database than 0"),
        ("redis+cluster://a?voters=2", "choose an odd number"),
        ("redis+cluster://a?voters=65", "choose an odd number"),
        ("redis+cluster://:hunter2@a/x?voters=three", "number"),
        ("redis+cluster://a?voters=1&tags=hunter2", "`voters`"),
        ("redis+cluster://a?password=hunter2", "voters=3"),
        ("redis+cluster://a?tags=a,b", "2 voters"),
        ("redis+cluster://a?tags=,a,b", "tag 1"),
        ("redis+cluster://a?tags=a,b,x%7By", "tag 3"),
        ("redis+cluster://a?tags=a,b,x}y", "tag 3"),
        ("redis+cluster://a?tags=a,b,a", "tags 1 and 3 are both"),
        (&long, "tag 1"),
        ("redis+sentinel://s1", "name"),
        ("redis+sentinel://s1/", "name"),
        ("redis+sentinel://s1/g/hunter2", "database"),
        ("redis+sentinel:///g", "sentinel 1: the host is empty"),
        ("redis+sentinel://s\u{1b}1/g", "the host has a character"),
        ("redis+sentinel://s1:x/g", "sentinel 1: the port"),
        ("redis+sentinel://s1,S1:26379/g", "2: it is given twice"),
        ("redis+sentinel://:%zzhunter2@s1/g", "%"),
        ("redis+sentinel://:%+7hunter2@s1/g", "%"),
        ("redis+sentinel://:hunter2%@s1/g", "%"),
        ("redis+sentinel://:%ffhunter2@s1/g", "%"),
        ("redis+sentinel://:a#hunter2@s1/g", "%23"),
        ("redis+sentinel://me:1234/hunter2@s1/g", "%2F"),
        (
            "redis+sentinel://s1/g?password=hunter2",
            "sentinel_password",
        ),
    ] {
        let error = build(&["redis://host", url]).await;
        let is_second = matches!(error, BuildError::Url { position: 2, .. });
        assert!(is_second, "{error:?}");
        let text = format!("{error} {error:?}");
        let is_right = text.contains(words) && !text.contains("hunter2");
        assert!(is_right, "{url}: {text}");
    }
}

#[tokio::test]
async fn a_list_of_nodes_is_told_which_url_is_wrong_and_what_to_write() {
    for (list, position, words) in [
        ("s1:6379", 1, "write redis:// in front"),
        ("me:secret@s1:6379", 1, "write redis:// in front"),
        // The rest of a password, which only looks like an address.
        ("redis://me:1,secret:6379,2@s1", 2, "write redis://"),
        ("redis://a,nonsense", 2, "scheme"),
        ("redis+sentinel://s1,s2", 1, "name"),
        ("redis+sentinel://s1,s2/g redis://a b", 3, "scheme"),
    ] {
        let text = Redlock::connect(list).await.unwrap_err().to_string();
        let is_right = text.contains(words) && !text.contains("secret");
        let is_there = text.starts_with(&format!("node {position}: "));
        assert!(is_right && is_there, "{list}: {text}");
    }
    for empty in ["", " , "] {
        let outcome = Redlock::connect(empty).await;
        assert_refused!(outcome, BuildError::Quorum(_));
    }
    let parts = ["redis+sentinel://:secret@s1", "s2", "s3/orders"];
    let text = build(&parts).await.to_string();
    assert!(text.contains("split at its commas"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[cfg(not(feature = "tls-rustls"))]
#[tokio::test]
async fn a_tls_url_without_tls_is_refused() {
    let error = build(&["rediss://host"]).await.to_string();
    assert!(error.contains("needs the feature `tls-rustls`"), "{error}");
}

#[tokio::test]
async fn the_same_address_twice_is_refused() {
    for twice in [
        ["redis://host:7000", "redis://host:7000"],
        ["redis://host/1", "REDIS://HOST:6379/1"],
        ["redis://a:b@host", "redis://c:d@host/0"],
        ["unix:///a.sock", "Unix:///a.sock?pass=b"],
        ["redis+sentinel://a,b/g", "Redis+Sentinel://a,b/g"],
    ] {
        let error = build(&["redis://other", twice[0], twice[1]]).await;
        let BuildError::DuplicateNode { first, second, .. } = error else {
            panic!("{twice:?}: {error:?}");
        };
        assert_eq!((first, second), (2, 3));
    }
    // Each of these clusters has three voters.
    let clusters = [
        "redis+cluster://a",
        "redis+cluster://b",
        "REDIS+CLUSTER://a,c",
    ];
    let error = build(&clusters).await.to_string();
    assert!(error.starts_with("nodes 1 and 3 are both slot"), "{error}");
    let node = MemoryNode::new();
    let same = Redlock::builder().custom_nodes([node.clone(), node]);
    assert_refused!(same.build().await, BuildError::DuplicateNode { .. });
}

#[tokio::test]
async fn bad_options_are_refused_as_defaults_and_fail_only_the_lock_that_has_them() {
    let builder = || Redlock::builder().custom_nodes([MemoryNode::new()]);
    let redlock = built(builder()).await;
    let options = LockOptions::new;
    for bad in [
        options().ttl(Duration::ZERO),
        options().ttl(MS(2)),
        options().ttl(Duration::MAX),
        options().ttl(Duration::from_secs(u64::MAX / 1000)),
        options().retry_delay(Duration::ZERO, MS(1)),
        options().renew_every(Duration::ZERO),
    ] {
        let outcome = builder().options(bad).build().await;
        assert_refused!(outcome, BuildError::Options(_));
        let outcome = redlock.lock("k").options(bad).await;
        assert_refused!(outcome, LockError::InvalidOptions(_));
    }
    let longer_than_max_ttl = redlock.lock("k").ttl(MS(10_001)).await;
    assert_refused!(longer_than_max_ttl, LockError::InvalidOptions(_));
    let error = redlock.lock("k").ttl(MS(2)).await.unwrap_err();
    let LockError::InvalidOptions(OptionsError::Validity(within_drift)) = error else {
        panic!("2 ms are used up by 2 ms of drift");
    };
    assert!(within_drift.to_string().contains("choose a longer ttl"));
    let permits = redlock.semaphore("k", 0).try_acquire().await;
    let permits = assert_refused!(permits, LockError::InvalidOptions(it) => it);
    assert!(permits.to_string().contains("no permits"), "{permits}");
    let after = redlock.try_lock("k").await;
    drop(after.expect("nothing was left behind"));

    for timeout in [Duration::ZERO, Duration::MAX] {
        let error = builder().node_timeout(timeout).build().await.unwrap_err();
        let expected = format!("node_timeout is {timeout:?}: choose more than zero");
        assert!(error.to_string().starts_with(&expected), "{error}");
        let error = builder().confirmation_window(timeout).build().await;
        assert_says(&error.unwrap_err(), "confirmation_window");
    }
    // Where an authority names a master, a ttl is at least three windows long.
    let group = || Redlock::builder().nodes("redis+sentinel://127.0.0.1:1/g");
    let short = options().ttl(MS(8999));
    let shorter = OptionsError::ShorterThanThreeWindows {
        ttl: MS(8999),
        window: MS(3000),
    };
    let error = group().options(short).build().await.unwrap_err();
    assert_eq!(error, BuildError::Options(shorter));
    let redlock = built(group().connect_timeout(MS(100))).await;
    let error = redlock.lock("k").options(short).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidOptions(it) if it == shorter));
    let fits = group().confirmation_window(MS(2999)).options(short);
    assert!(fits.build().await.is_ok());
    let long = builder().prefix(vec![b'x'; Key::MAX_LEN]).build().await;
    assert_refused!(long, BuildError::Prefix { .. });
}

#[tokio::test(start_paused = true)]
async fn the_shortest_ttl_that_is_accepted_is_held_and_lost() {
    let redlock = embedded().await;
    let options = LockOptions::new().ttl(MS(3)).no_renewal();
    let guard = redlock.lock("k").options(options).await.unwrap();
    guard.lost().await;
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_are_accepted() {
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let builder = Redlock::builder().embedded().max_ttl(century);
    let redlock = builder.build().await.unwrap();
    let options = LockOptions::new()
        .ttl(century)
        .wait(Duration::MAX)
        .max_hold(Duration::MAX);
    let guard = redlock.lock("k").options(options).await.unwrap();
    assert!(guard.remaining() > century / 2);
    guard.extend().await.unwrap();
    let forever = redlock.lock("k").wait(Duration::MAX).into_future();
    let waited = tokio::time::timeout(MS(100), forever).await;
    assert!(waited.is_err(), "it waits");
}

#[tokio::test]
async fn redis_accepts_the_longest_ttl() {
    let servers = RedisServers::spawn(1).unwrap();
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let redlock = servers.builder().max_ttl(century).build().await.unwrap();
    assert!(redlock.lock("k").ttl(century).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_of_any_bytes_are_accepted_up_to_the_longest_length() {
    let nodes = three_nodes();
    let redlock = over(&nodes).prefix("lock:").build().await.unwrap();
    let len = Key::MAX_LEN + 1;
    for (key, expected) in [
        (vec![], KeyError::Empty),
        (vec![b'x'; len - 5], KeyError::TooLong { len }),
    ] {
        let outcome = redlock.lock(key).await;
        let error = assert_refused!(outcome, LockError::InvalidKey(it) => it);
        assert_eq!(error, expected);
    }

    let any = [0, 1, b'\r', b'\n', b' ', 0x80, 0xff];
    let guard = redlock.lock(any).await.unwrap();
    assert_eq!(guard.key().as_bytes(), [b"lock:", &any[..]].concat());
    assert!(nodes[0].contains(guard.key()));
}

#[test]
fn building_outside_of_a_runtime_is_an_error() {
    let built = futures_executor::block_on(Redlock::embedded());
    assert_eq!(built.map(drop), Err(BuildError::NoRuntime));
}

/// On a thread without a runtime, while that of the `Redlock` runs elsewhere.
#[test]
fn all_futures_work_on_any_executor() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let redlock = runtime.block_on(embedded());
    futures_executor::block_on(async {
        redlock.ready(Duration::MAX).await.unwrap();
        let guard = redlock.lock("k").await.unwrap();
        guard.extend().await.unwrap();
        guard.extend_for(MS(9000)).await.unwrap();
        assert!(redlock.try_lock("k").await.unwrap_err().is_contended());
        assert!(redlock.lock("k").wait(MS(20)).await.is_err());
        let inspection = redlock.inspect("k").await.unwrap();
        assert_eq!(redlock.search().next().await.unwrap().unwrap().len(), 1);
        redlock.force_unlock(&inspection).await;
        guard.lost().await;
        guard.release().await;

        let guard = redlock.rw_lock("rw").write().await.unwrap();
        guard.downgrade().await.unwrap();
        drop(redlock.rw_lock("rw").try_read().await.unwrap());
        assert!(redlock.rw_lock("rw").try_write().await.is_err());
        let guard = redlock.semaphore("permits", 2).try_acquire().await.unwrap();
        guard.release_after(MS(50)).await.unwrap();
        assert_eq!(redlock.lock("k").with(async |_| 7).await.unwrap(), 7);
        let once = redlock.once("job", std::time::SystemTime::now());
        assert!(once.run(async |_| ()).await.is_ok());

        let election = redlock.elect("reports");
        let candidate = election.candidate();
        candidate.leader().await.unwrap();
        let leaders = election.observe(MS(10));
        futures::pin_mut!(leaders);
        assert_eq!(leaders.next().await.unwrap().unwrap(), Verdict::Free);
        let led = election.run(async |_| leaders.next().await.unwrap().unwrap());
        assert_ne!(led.await.unwrap(), Verdict::Free);
        assert!(!redlock.shutdown(MS(5000)).await.timed_out);
    });
}

#[test]
fn all_calls_return_after_the_runtime_has_ended() {
    // Nothing runs on it once it is dropped, since it has no threads.
    let first = runtime();
    let redlock = first.block_on(embedded());
    let [held, dropped] =
        first.block_on(acquired(["held", "dropped"].map(|key| redlock.lock(key))));
    let waiting = redlock.lock("held").into_future();
    drop(first);
    futures_executor::block_on(async {
        assert_eq!(
            held.lost().await,
            LossReason::Abandoned,
            "nothing renews it"
        );
        assert!(!held.is_valid());
        assert_refused!(held.extend().await, ExtendError::Lost(_));
        drop(dropped);
        assert_eq!(held.release().await.outcome, ReleaseOutcome::NotHeld);
        // No call waits for an answer that cannot come.
        assert_refused!(waiting.await, LockError::ShutDown);
        let patient = redlock.lock("k").wait(Duration::MAX);
        assert_refused!(patient.await, LockError::ShutDown);
        assert_refused!(redlock.try_lock("k").await, LockError::ShutDown);
        let report = redlock.shutdown(None).await;
        // Two locks on five nodes.
        assert_eq!((report.abandoned, report.held), (10, 0));
    });
}

#[test]
fn a_server_that_fails_to_start_is_reported_at_once_with_its_reason() {
    // Some servers report the first fault as a fatal error in the configuration, and others do not. No
    // server reports the second one like that.
    for (arguments, word) in [
        (["--bogus", "x"], "bogus"),
        (["--unixsocket", "/no/such/folder"], "Unix socket"),
    ] {
        let before = Instant::now();
        let error = RedisServers::spawn_with(1, &arguments).unwrap_err();
        assert!(matches!(error, SpawnError::Ended { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(before.elapsed() < Duration::from_secs(10));
    }
}
