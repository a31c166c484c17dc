//! Waiters for several keys of which one is held: how long the free keys are unavailable to others. Over
//! nodes in memory, by tokio's clock.

use std::time::Duration;

use redlock_tokio::{LockError, Redlock};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{MS, in_memory::embedded};

/// How long a lock took, or why it failed.
type Wait = Result<Duration, LockError>;

/// Locks `a` this many times, one lock in each interval, and holds each lock for 1 ms. Returns the time
/// that each lock took.
async fn lock_a_repeatedly(redlock: &Redlock, times: usize, every: Duration) -> Vec<Wait> {
    let mut locks = JoinSet::new();
    for _ in 0..times {
        let redlock = redlock.clone();
        locks.spawn(async move {
            let start = Instant::now();
            let guard = redlock.lock("a").await?;
            let waited = start.elapsed();
            tokio::time::sleep(MS(1)).await;
            drop(guard);
            Ok(waited)
        });
        tokio::time::sleep(every).await;
    }
    locks.join_all().await
}

/// A key is kept for 200 ms at a time at most.
const LONGEST: Duration = Duration::from_millis(200 + 20);

/// Asserts that all locks were granted, the slowest within the longest time and half of them within 50 ms.
fn assert_usable(waits: Vec<Wait>) {
    let count = waits.len();
    let mut waits: Vec<_> = waits.into_iter().filter_map(Result::ok).collect();
    let failed = count - waits.len();
    waits.sort_unstable();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{count} locks: {failed} failed, median {median:?}, longest {longest:?}");
    assert_eq!(failed, 0, "of {count}");
    assert!(longest <= LONGEST, "longest wait {longest:?}");
    assert!(median <= MS(50), "median wait {median:?}");
}

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
        assert_usable(lock_a_repeatedly(&redlock, 500, MS(30)).await);
        drop(b);
        both.await.unwrap();
    }
}

/// A caller that does not wait is refused while the key is kept.
#[tokio::test(start_paused = true)]
async fn a_free_key_stays_usable_for_callers_that_do_not_wait() {
    let redlock = embedded().await;
    let b = redlock.lock("b").await.unwrap();
    let both = redlock.lock_all(["a", "b"]).wait(MS(300_000));
    let both = tokio::spawn(both.into_future());
    let mut served = 0;
    for _ in 0..500 {
        tokio::time::sleep(MS(10)).await;
        served += u32::from(redlock.try_lock("a").await.is_ok());
    }
    assert!((200..=300).contains(&served), "{served} of 500");
    drop(b);
    assert!(both.await.unwrap().is_ok());
}

/// Many waiters for `a` and the held key `b` do not block a waiter for `a` and a free key, whether they
/// want a third key or not.
#[tokio::test(start_paused = true)]
async fn free_keys_are_locked_behind_many_waiters_for_a_held_one() {
    for stuck_want in ["the same", "different keys"] {
        let redlock = embedded().await;
        let b = redlock.lock("b").await.unwrap();
        let mut stuck = JoinSet::new();
        for index in 0..40 {
            let other = match stuck_want {
                "the same" => "a".to_owned(),
                _ => format!("x{index}"),
            };
            let keys = ["a".to_owned(), "b".to_owned(), other];
            stuck.spawn(redlock.lock_all(keys).wait(MS(30_000)).into_future());
        }
        tokio::time::sleep(MS(200)).await;
        let start = Instant::now();
        let mut free = JoinSet::new();
        for index in 0..12 {
            let lock = redlock.lock_all(["a".to_owned(), format!("c{index}")]);
            free.spawn(async move {
                let guard = lock.await;
                let waited = start.elapsed();
                tokio::time::sleep(MS(1)).await;
                guard.map(|_guard| waited)
            });
        }
        let free = free.join_all().await;
        println!("behind waiters that want {stuck_want}: {free:?}");
        for waited in free {
            let waited = waited.unwrap_or_else(|error| panic!("{stuck_want}: {error}"));
            assert!(waited <= LONGEST, "{stuck_want}: {waited:?}");
        }
        drop(b);
        while let Some(stuck) = stuck.join_next().await {
            drop(stuck.unwrap().unwrap());
        }
    }
}
