//! Several keys under one lock, without a deadlock. A waiter for several keys neither starves nor keeps free
//! keys from others for long. Over nodes in memory, by tokio's clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redlock_tokio::{Lock, LockOptions};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    MS, built,
    in_memory::{client, embedded, keep_busy, over, three_nodes},
};

/// A key is kept for 200 ms at a time at most.
const LONGEST: Duration = Duration::from_millis(200 + 20);

/// Other processes keep each of two keys busy, so that both are rarely free at the same moment.
#[tokio::test(start_paused = true)]
async fn row_49_several_keys_are_served_beside_other_processes() {
    let nodes = three_nodes();
    let mut others = JoinSet::new();
    for key in ["a", "a", "a", "b", "b", "b"] {
        let redlock = client(&nodes).await;
        others.spawn(async move { keep_busy(|| redlock.lock(key), MS(5)).await });
    }
    let redlock = client(&nodes).await;
    for _ in 0..5 {
        let start = Instant::now();
        let lock = redlock.lock_all(["a", "b"]).wait(Duration::MAX);
        let guard = timeout(MS(3000), lock.into_future()).await;
        assert!(guard.is_ok(), "after {:?}", start.elapsed());
    }
}

/// In one of two slices of time, both keys are kept for their waiter. When the slice is over, the holder of one key can lock
/// the other one, alone or with a third.
#[tokio::test(start_paused = true)]
async fn a_holder_gets_a_kept_key_after_a_while() {
    let redlock = embedded().await;
    for others in [1, 40] {
        for wanted in [&["a"][..], &["a", "c"]] {
            let b = redlock.lock("b").await.unwrap();
            let wait = |keys: &[&str]| {
                let lock = redlock.lock_all(keys).wait(Duration::MAX);
                tokio::spawn(lock.into_future())
            };
            let both: Vec<_> = (0..others).map(|_| wait(&["a", "b"])).collect();
            while let Ok(a) = redlock.try_lock("a").await {
                drop(a);
                sleep(MS(10)).await;
            }
            let start = Instant::now();
            let nested = wait(wanted).await.unwrap().unwrap();
            let waited = start.elapsed();
            assert!(waited > MS(0) && waited <= MS(200), "{waited:?}");
            drop((nested, b));
            for both in both {
                drop(both.await.unwrap().unwrap());
            }
        }
    }
}

/// Three tasks keep each of two keys busy. A task that wants both keys gets them in one of two slices of 100 ms, with
/// handover and without.
#[tokio::test(start_paused = true)]
async fn row_48_several_keys_are_served_beside_busy_single_ones() {
    for options in [LockOptions::new(), LockOptions::new().handover(false)] {
        let redlock = built(over(&three_nodes()).options(options)).await;
        let singles = Arc::new(AtomicUsize::new(0));
        let mut busy = JoinSet::new();
        for key in ["a", "a", "a", "b", "b", "b"] {
            let (redlock, singles) = (redlock.clone(), Arc::clone(&singles));
            busy.spawn(async move {
                while let Ok(_guard) = redlock.lock(key).await {
                    singles.fetch_add(1, SeqCst);
                    sleep(MS(2)).await;
                }
            });
        }
        let start = Instant::now();
        let mut entries = 0;
        while start.elapsed() < MS(8000) {
            let guard = redlock.lock_all(["a", "b"]).wait(MS(240)).await;
            let _guard = guard.unwrap_or_else(|error| panic!("after {entries} entries: {error}"));
            entries += 1;
            sleep(MS(2)).await;
        }
        let singles = singles.load(SeqCst);
        // Three tasks and this one want each key, so this one gets a quarter of the turns if all are equal.
        assert!(entries * 24 > singles, "{entries} to {singles}");
    }
}

/// A caller that does not wait is refused while the key is kept.
#[tokio::test(start_paused = true)]
async fn a_free_key_stays_usable_beside_a_waiter_for_several() {
    for wait in [MS(300_000), MS(130)] {
        let redlock = embedded().await;
        let b = redlock.lock("b").await.unwrap();
        let theirs = redlock.clone();
        let both = tokio::spawn(async move {
            let both = || theirs.lock_all(["a", "b"]).wait(wait);
            while both().await.is_err() {}
        });
        let waits = waits((0..500).map(|_| redlock.lock("a")), MS(30)).await;
        assert!(waits[250] <= MS(50) && waits[499] <= LONGEST, "{waits:?}");
        let mut served = 0;
        for _ in 0..500 {
            sleep(MS(10)).await;
            served += u32::from(redlock.try_lock("a").await.is_ok());
        }
        assert!((200..=300).contains(&served), "{served} of 500");
        drop(b);
        both.await.unwrap();
    }
}

/// Many waiters for `a` and the held key `b` do not block a waiter for `a` and a free key, whether they
/// want a third key or not.
#[tokio::test(start_paused = true)]
async fn free_keys_are_locked_behind_many_waiters_for_a_held_one() {
    for stuck_want_a_third in [false, true] {
        let redlock = embedded().await;
        let b = redlock.lock("b").await.unwrap();
        let mut stuck = JoinSet::new();
        for index in 0..40 {
            let third = format!("x{index}");
            let keys = ["a", "b", if stuck_want_a_third { &third } else { "a" }];
            stuck.spawn(redlock.lock_all(keys).wait(MS(30_000)).into_future());
        }
        sleep(MS(200)).await;
        let free = (0..12).map(|index| redlock.lock_all(["a", &format!("c{index}")]));
        let waits = waits(free, MS(0)).await;
        assert!(waits[11] <= LONGEST, "{waits:?}");
        drop(b);
        while let Some(stuck) = stuck.join_next().await {
            drop(stuck.unwrap().unwrap());
        }
    }
}

/// Makes these requests, one in each interval, and holds each lock for 1 ms. Returns how long they waited, the shortest first.
async fn waits(locks: impl Iterator<Item = Lock>, every: Duration) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    for lock in locks {
        let asked = Instant::now();
        tasks.spawn(async move {
            let _guard = lock.await.unwrap();
            let waited = asked.elapsed();
            sleep(MS(1)).await;
            waited
        });
        sleep(every).await;
    }
    let mut waits = tasks.join_all().await;
    waits.sort_unstable();
    waits
}
