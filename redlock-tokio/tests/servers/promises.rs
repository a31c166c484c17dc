//! Each promise of the README, against real servers.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use redlock_tokio::{LockOptions, Redlock, ReleaseOutcome};
use tokio::task::JoinSet;

use crate::{
    fleet::fleet,
    support::{self, Cli, MS, eventually, in_memory::settle, trusting},
};

async fn five() -> (RedisServers, Redlock) {
    let servers = RedisServers::spawn(5).expect("five servers");
    let redlock = servers.builder().build().await.expect("connects");
    (servers, redlock)
}

#[tokio::test]
async fn a_lock_is_held_and_released_on_all_five_nodes() {
    let (servers, redlock) = five().await;
    let guard = redlock.lock("k").await.unwrap();
    let token = guard.value();
    let having = |token| servers.iter().all(|it| Cli::of(it).get("k") == token);
    eventually("the key is on every node", || having(Some(token.clone()))).await;
    drop(guard);
    eventually("the key is gone from every node", || having(None)).await;
}

#[tokio::test]
async fn a_held_lock_excludes_others_until_its_release() {
    let (servers, redlock) = five().await;
    let other = servers.builder().build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    let error = other.try_lock("k").await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    assert!(other.try_lock("another").await.is_ok());
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    let second = other.try_lock("k").await.expect("free again");
    assert!(second.is_valid());
}

#[tokio::test]
async fn a_lock_that_is_released_later_outlives_its_process() {
    const TEST: &str = "promises::a_lock_that_is_released_later_outlives_its_process";
    const TTL: Duration = Duration::from_millis(300);
    if let Some(urls) = support::role() {
        let redlock = trusting(urls.split(',')).build().await.unwrap();
        let guard = redlock.lock("k").ttl(TTL).await.unwrap();
        guard.release_after(5 * TTL).await.unwrap();
        println!("{}", support::READY);
        return pending().await;
    }
    let (servers, [redlock]) = fleet(3).await;
    let mut process = support::in_another_process(TEST, &servers.urls().join(","));
    process.kill().unwrap();
    process.wait().unwrap();
    let killed = Instant::now();
    drop(redlock.lock("k").await.unwrap());
    let waited = killed.elapsed();
    // Less than the whole time, since the lock was taken before the process was killed.
    assert!(waited > 2 * TTL, "{waited:?}");
}

#[tokio::test]
async fn a_lock_is_held_with_two_of_five_nodes_killed() {
    let (servers, redlock) = five().await;
    let before = redlock.lock("before").await.unwrap();
    servers.get(1).kill();
    servers.get(3).kill();
    let after = redlock.lock("after").await.expect("three of five vote");
    before.extend().await.expect("three of five extend");
    assert!(before.is_valid() && after.is_valid());
}

#[tokio::test]
async fn a_service_starts_with_two_of_five_nodes_down() {
    let servers = RedisServers::spawn(5).unwrap();
    servers.get(0).kill();
    servers.get(4).kill();
    let redlock = servers.builder().build().await.expect("it starts");
    assert!(redlock.lock("k").await.is_ok());
}

#[tokio::test]
async fn a_frozen_minority_costs_nothing_and_gets_its_releases_when_it_is_back() {
    let servers = RedisServers::spawn(5).expect("five servers");
    let redlock = servers.builder().node_timeout(MS(1000));
    let redlock = redlock.build().await.unwrap();
    let frozen = [servers.get(0), servers.get(1)];
    frozen.iter().for_each(|it| it.freeze());
    for _ in 0..3 {
        let started = Instant::now();
        let guard = redlock.lock("k").await.expect("three answer");
        assert!(started.elapsed() < MS(1000), "it waits for no timeout");
        drop(guard);
    }
    // With one more, each lock waits for the timeout.
    let other = servers.builder().node_timeout(MS(1000));
    let other = other.build().await.unwrap();
    servers.get(2).freeze();
    let started = Instant::now();
    other.try_lock("other").await.unwrap_err();
    assert!(started.elapsed() >= MS(1000));
    servers.get(2).thaw();
    frozen.iter().for_each(|it| it.thaw());
    let is_gone = || servers.iter().all(|it| Cli::of(it).get("k").is_none());
    eventually("no key is left, not even on the thawed nodes", is_gone).await;
    assert_eq!(redlock.shutdown(None).await.abandoned, 0);
}

#[tokio::test]
async fn renewal_keeps_a_lock_beyond_its_ttl() {
    let (servers, redlock) = five().await;
    let other = servers.builder().build().await.unwrap();
    let ttl = MS(300);
    let guard = redlock.lock("k").ttl(ttl).await.unwrap();
    let since = Instant::now();
    while since.elapsed() < 4 * ttl {
        assert!(guard.is_valid());
        assert!(other.try_lock("k").await.unwrap_err().is_contended());
        tokio::time::sleep(ttl / 10).await;
    }
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_lock_without_renewal_is_lost_within_its_ttl() {
    let (servers, redlock) = five().await;
    let options = LockOptions::new().ttl(MS(300)).no_renewal();
    let guard = redlock.lock("k").options(options).await.unwrap();
    // A timer of the same runtime, so that a pause of the machine delays both.
    let ttl_is_over = async {
        tokio::time::sleep(MS(300)).await;
        settle().await;
    };
    tokio::select! {
        biased;
        _ = guard.lost() => {}
        () = ttl_is_over => panic!("not lost within the ttl"),
    }
    assert!(!guard.is_valid());
    let other = servers.builder().build().await.unwrap();
    assert!(other.lock("k").wait(MS(400)).await.is_ok());
}

#[tokio::test]
async fn a_crashed_holder_frees_the_lock_by_its_ttl() {
    let ttl = MS(1500);
    if let Some(urls) = support::role() {
        // The other process holds the lock until it is killed.
        let redlock = trusting(urls.split(',')).build().await.unwrap();
        let guard = redlock.lock("k").ttl(ttl).await.unwrap();
        println!("{}", support::READY);
        panic!("lost: {}", guard.lost().await);
    }
    let (servers, redlock) = five().await;
    let mut holder = support::in_another_process(
        "promises::a_crashed_holder_frees_the_lock_by_its_ttl",
        &servers.urls().join(","),
    );
    // The lock is held for longer than a ttl, so the holder renews it.
    tokio::time::sleep(ttl + MS(100)).await;
    assert!(redlock.try_lock("k").await.unwrap_err().is_contended());
    holder.kill().expect("kill -9");
    holder.wait().unwrap();
    let died = Instant::now();
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(error.is_contended(), "a crash releases nothing: {error}");
    let guard = redlock.lock("k").wait(2 * ttl).await;
    assert!(guard.is_ok_and(|it| it.is_valid()), "free by the ttl");
    assert!(died.elapsed() <= ttl + MS(300), "{:?}", died.elapsed());
}

#[tokio::test]
async fn a_foreign_key_on_a_minority_is_left_alone_and_does_not_prevent_the_lock() {
    let (servers, redlock) = five().await;
    let foreign = [servers.get(0), servers.get(3)].map(Cli::of);
    foreign.iter().for_each(|it| it.set("k", "foreign"));
    let guard = redlock.try_lock("k").await.expect("three are free");
    guard.extend().await.expect("three extend");
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
    for cli in foreign {
        assert_eq!(cli.get("k").as_deref(), Some("foreign"));
        assert_eq!(cli.pttl("k"), -1, "its expiry is unchanged, too");
    }
}

#[tokio::test]
async fn a_foreign_key_on_a_majority_prevents_the_lock_and_is_left_alone() {
    let (servers, redlock) = five().await;
    let foreign = [0, 1, 4].map(|index| Cli::of(servers.get(index)));
    foreign.iter().for_each(|it| it.set("k", "foreign"));
    let error = redlock.lock("k").wait(MS(100)).await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    for cli in foreign {
        assert_eq!(cli.get("k").as_deref(), Some("foreign"));
    }
    let ours = [2, 3].map(|index| Cli::of(servers.get(index)));
    let are_gone = || ours.iter().all(|it| it.get("k").is_none());
    eventually("our own keys are gone", are_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_tasks_are_ever_inside_at_once() {
    let (servers, redlock) = five().await;
    let other = servers.builder().build().await.unwrap();
    let options = LockOptions::new()
        .wait(Duration::from_secs(60))
        .retry_delay(MS(1), MS(10));
    // Each task reads, pauses and writes, so that a second task inside would show as a lost update.
    let count = Arc::new(AtomicU32::new(0));
    let retries = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let redlock = if number % 2 == 0 { &redlock } else { &other }.clone();
        let (count, retries) = (Arc::clone(&count), Arc::clone(&retries));
        tasks.spawn(async move {
            for _ in 0..5 {
                if let Err(error) = redlock.try_lock("k").await.map(drop) {
                    assert!(error.is_contended(), "{error}");
                    retries.fetch_add(1, Relaxed);
                }
                let guard = redlock.lock("k").options(options).await.unwrap();
                let read = count.load(Relaxed);
                tokio::time::sleep(MS(1)).await;
                count.store(read + 1, Relaxed);
                assert!(guard.is_valid());
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(count.load(Relaxed), 16 * 5, "no update was lost");
    assert!(retries.load(Relaxed) > 0, "the lock was contended");
}

/// Somebody may be told of the result, and try at once.
#[tokio::test]
async fn another_process_finds_the_lock_free_once_with_has_returned() {
    let servers = RedisServers::spawn(5).unwrap();
    let connect = async || servers.builder().build().await.unwrap();
    let (one, other) = (connect().await, connect().await);
    let mut refused = 0;
    for _ in 0..200 {
        one.lock("k").with(async |_| ()).await.unwrap();
        match other.try_lock("k").await {
            Ok(guard) => _ = guard.release().await,
            Err(error) if error.is_contended() => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, 0, "of 200");
}
