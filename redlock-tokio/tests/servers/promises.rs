//! What the repository's `README.md` promises first: a lock is held by one process at a time, and ends with it.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use redlock_tokio::Acquisition;

use crate::{
    fleet::fleet,
    support::{MS, Other, assert_says, role, trusting},
};

#[tokio::test]
async fn a_guard_names_the_nodes_that_granted_its_lock() {
    let (servers, [redlock]) = fleet(3).await;
    servers.get(1).kill();
    let guard = redlock.lock("k").await.unwrap();
    let acquisition = guard.acquisition();
    let Acquisition::Granted {
        granted_by,
        votes_needed,
        nodes_total,
        attempts,
        ..
    } = &acquisition
    else {
        panic!("{acquisition}");
    };
    let up = [0, 2].map(|index| servers.get(index).address().to_string());
    assert_eq!(granted_by.iter().map(|it| &**it).collect::<Vec<_>>(), up);
    assert_eq!((*votes_needed, *nodes_total, *attempts), (2, 3, 1));
    let by = up.join(", ");
    assert_says(
        &acquisition,
        &format!("granted by 2 of 3 nodes ({by}) with 1 attempt in "),
    );
    // Renewals and losses do not change what was.
    guard.extend().await.unwrap();
    assert_eq!(guard.acquisition(), acquisition);
}

#[tokio::test]
async fn a_lock_that_is_released_later_outlives_its_process_until_then() {
    const TEST: &str = "promises::a_lock_that_is_released_later_outlives_its_process_until_then";
    const TTL: Duration = Duration::from_millis(300);
    if let Some(urls) = role() {
        let redlock = trusting(urls.split(',')).build().await.unwrap();
        for (key, ttl) in [("short", TTL), ("long", 30 * TTL)] {
            let guard = redlock.lock(key).ttl(ttl).await.unwrap();
            guard.release_after(5 * TTL).await.unwrap();
        }
        println!("ready");
        return pending().await;
    }
    let (servers, [redlock]) = fleet(3).await;
    let process = Other::start(TEST, &servers.urls().join(","));
    process.printed("ready");
    // This kills it.
    drop(process);
    let killed = Instant::now();
    for key in ["short", "long"] {
        drop(redlock.lock(key).await.unwrap());
        let waited = killed.elapsed();
        // Less than the whole time, since the lock was taken before the process was killed.
        assert!((2 * TTL..6 * TTL).contains(&waited), "{waited:?}: {key}");
    }
}

#[tokio::test]
async fn a_crashed_holder_frees_the_lock_by_its_ttl() {
    const TEST: &str = "promises::a_crashed_holder_frees_the_lock_by_its_ttl";
    let ttl = MS(1500);
    if let Some(urls) = role() {
        // The other process holds the lock until it is killed.
        let redlock = trusting(urls.split(',')).build().await.unwrap();
        let guard = redlock.lock("k").ttl(ttl).await.unwrap();
        println!("ready");
        panic!("lost: {}", guard.lost().await);
    }
    let (servers, [redlock]) = fleet(5).await;
    let holder = Other::start(TEST, &servers.urls().join(","));
    holder.printed("ready");
    // The lock is held for longer than a ttl, so the holder renews it.
    tokio::time::sleep(ttl + MS(100)).await;
    assert!(redlock.try_lock("k").await.unwrap_err().is_contended());
    // This kills it.
    drop(holder);
    let died = Instant::now();
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(error.is_contended(), "a crash releases nothing: {error}");
    let guard = redlock.lock("k").wait(2 * ttl).await;
    assert!(guard.is_ok_and(|it| it.is_valid()), "free by the ttl");
    assert!(died.elapsed() <= ttl + MS(300), "{:?}", died.elapsed());
}
