//! Several keys under one lock: all of them or none, and no deadlock. Over nodes in memory, by tokio's
//! clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use redlock_tokio::{ExtendError, LockError, LockOptions, LossReason, MemoryNode, Redlock};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    MS, assert_says,
    in_memory::{
        all_empty, blocked, client, embedded, fleet, keep_busy, over, settle, three_nodes,
    },
};

#[tokio::test(start_paused = true)]
async fn several_keys_are_locked_together_or_not_at_all() {
    let (nodes, [redlock, theirs]) = fleet().await;
    let b = redlock.lock("b").await.unwrap();
    let outcome = redlock.lock_all(["a", "b"]).wait(MS(300)).await;
    assert!(outcome.unwrap_err().is_contended());
    let outcome = theirs.lock_all(["b", "c"]).wait(MS(300)).await;
    assert!(outcome.unwrap_err().is_contended());
    settle().await;
    assert!(nodes.iter().all(|node| node.len() == 1), "nothing but b");
    let waiting = tokio::spawn(theirs.lock_all(["c", "b", "c"]).into_future());
    tokio::time::sleep(MS(1000)).await;
    drop(b);
    let guard = waiting.await.unwrap().unwrap();
    let keys: Vec<_> = guard.keys().map(|key| key.as_bytes().to_vec()).collect();
    assert_eq!(keys, [b"b", b"c"]);
    let has_both = |node: &MemoryNode| node.contains("b") && node.contains("c");
    assert!(nodes.iter().all(has_both));
    tokio::time::sleep(MS(30_000)).await;
    guard.extend().await.expect("it is renewed");
    for node in &nodes {
        assert!(node.remove("c"));
    }
    let outcome = guard.extend().await;
    assert_refused!(outcome, ExtendError::Lost(LossReason::KeysLost));
    theirs.shutdown(None).await;
    assert!(all_empty(&nodes));

    let error = redlock.lock_all(["x"; 0]).await.unwrap_err();
    assert!(error.to_string().contains("nothing to lock"), "{error}");
    assert_refused!(redlock.lock_all(["x", ""]).await, LockError::InvalidKey(_));
    let many = (0..1025).map(|index| index.to_string());
    let error = redlock.lock_all(many).await.unwrap_err();
    assert_says(&error, "1025 keys are too many");
    let guard = redlock.lock_all(["x", "y"]).fenced(true).await.unwrap();
    let both = guard.fencing_token();
    guard.release().await;
    let guard = redlock.lock_all(["x", "x"]).fenced(true).await.unwrap();
    assert!(both.is_some() && guard.fencing_token() > both);
}

/// A waiter for two keys does not keep the holder of one of them from the other.
#[tokio::test(start_paused = true)]
async fn a_waiter_for_several_keys_keeps_no_key_from_others() {
    let (nodes, [redlock]) = fleet().await;
    let b = redlock.lock("b").await.unwrap();
    let both = blocked(redlock.lock_all(["a", "b"]).wait(Duration::MAX)).await;
    let a = redlock.lock("a").wait(Duration::MAX);
    let a = tokio::time::timeout(MS(100), a.into_future()).await;
    let a = a.expect("it is free").unwrap();
    drop(b);
    settle().await;
    drop(a);
    let both = tokio::time::timeout(MS(100), both).await;
    let both = both.expect("it has its turn").unwrap().unwrap();
    // A key that a minority lost is set again.
    assert!(nodes[0].remove("a"));
    for _ in 0..2 {
        both.extend().await.unwrap();
        settle().await;
    }
    assert!(nodes[0].contains("a"));
}

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
        let guard = tokio::time::timeout(MS(3000), lock.into_future()).await;
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
                tokio::time::sleep(MS(10)).await;
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

/// Tasks lock random sets of four keys two thousand times, together or one after the other, and no task waits
/// for ever.
#[tokio::test(start_paused = true)]
async fn locking_several_keys_never_deadlocks() {
    let redlock = embedded().await;
    let mut tasks = JoinSet::new();
    let inside = Arc::new([const { AtomicUsize::new(0) }; 4]);
    for task in 0..40u64 {
        let (redlock, inside) = (redlock.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let mut rng = Rng::with_seed(task);
            for _ in 0..50 {
                let mut keys = [0, 1, 2, 3];
                rng.shuffle(&mut keys);
                let keys = &keys[..rng.usize(1..=3)];
                let lock_all = |keys: &[usize]| {
                    let names = keys.iter().map(|key| format!("account:{key}"));
                    redlock.lock_all(names).wait(Duration::MAX)
                };
                // Some tasks lock one key after the other. A common order avoids their deadlock.
                let mut one_by_one = Vec::new();
                if rng.u8(..) < 60 {
                    let mut keys = keys.to_vec();
                    keys.sort_unstable_by_key(|key| std::cmp::Reverse(*key));
                    for key in keys {
                        one_by_one.push(lock_all(&[key]).await.unwrap());
                    }
                    tokio::time::sleep(MS(rng.u64(0..4))).await;
                    continue;
                }
                let lock = lock_all(keys);
                let guard = if rng.u8(..) < 40 {
                    let limit = MS(rng.u64(0..30));
                    match tokio::time::timeout(limit, lock.into_future()).await {
                        Ok(guard) => guard.unwrap(),
                        Err(_) => continue,
                    }
                } else {
                    lock.await.unwrap()
                };
                for key in keys {
                    assert_eq!(inside[*key].fetch_add(1, SeqCst), 0, "two tasks are inside");
                }
                tokio::time::sleep(MS(rng.u64(0..4))).await;
                for key in keys {
                    inside[*key].fetch_sub(1, SeqCst);
                }
                drop(guard);
            }
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(3600), tasks.join_all());
    all.await.expect("no task waits for ever");
    redlock.shutdown(None).await;
    assert_eq!(redlock.queue().keys, 0);
}

/// Locks one key again and again until the service shuts down, and holds it for 2 ms. Returns how often.
async fn keep_counting(redlock: Redlock, key: &'static str) -> usize {
    for entries in 0.. {
        match redlock.lock(key).await {
            Ok(_guard) => tokio::time::sleep(MS(2)).await,
            Err(_) => return entries,
        }
    }
    unreachable!()
}

/// Three tasks keep each of two keys busy. A task that wants both keys gets them in one of two slices of 100 ms, with
/// handover and without.
#[tokio::test(start_paused = true)]
async fn row_48_several_keys_are_served_beside_busy_single_ones() {
    for options in [LockOptions::new(), LockOptions::new().handover(false)] {
        let redlock = over(&three_nodes()).options(options).build().await.unwrap();
        let mut busy = JoinSet::new();
        for key in ["a", "a", "a", "b", "b", "b"] {
            busy.spawn(keep_counting(redlock.clone(), key));
        }
        let start = Instant::now();
        let (mut entries, mut longest) = (0, Duration::ZERO);
        while start.elapsed() < MS(8000) {
            let asked = Instant::now();
            let guard = redlock.lock_all(["a", "b"]).await;
            let guard = guard.unwrap_or_else(|error| panic!("after {entries} entries: {error}"));
            longest = longest.max(asked.elapsed());
            entries += 1;
            tokio::time::sleep(MS(2)).await;
            drop(guard);
        }
        redlock.shutdown(None).await;
        let singles: usize = busy.join_all().await.into_iter().sum();
        println!("{options:?}: {singles} single, {entries} both, longest wait {longest:?}");
        assert!(longest <= MS(240), "{longest:?}");
        // Three tasks and this one want each key, so this one gets a quarter of the turns if all are equal.
        assert!(entries * 24 > singles, "{entries} to {singles}");
    }
}
