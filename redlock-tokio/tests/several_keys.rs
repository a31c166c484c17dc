//! Several keys under one lock: all of them or none, and no deadlock. On nodes in memory, by tokio's
//! clock.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use redlock_tokio::{ExtendError, LockError, LossReason, MemoryNode};
use support::{
    MS,
    in_memory::{embedded, over, settle, three_nodes},
};
use tokio::task::JoinSet;

#[tokio::test(start_paused = true)]
async fn several_keys_are_locked_together_or_not_at_all() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let b = redlock.lock("b").await.unwrap();
    assert!(
        redlock
            .lock_all(["a", "b"])
            .wait(MS(300))
            .await
            .unwrap_err()
            .is_contended()
    );
    let theirs = over(&nodes).build().await.unwrap();
    assert!(
        theirs
            .lock_all(["b", "c"])
            .wait(MS(300))
            .await
            .unwrap_err()
            .is_contended()
    );
    settle().await;
    assert!(nodes.iter().all(|node| node.len() == 1), "nothing but b");
    let waiting = tokio::spawn(theirs.lock_all(["c", "b", "c"]).into_future());
    tokio::time::sleep(MS(1000)).await;
    drop(b);
    let guard = waiting.await.unwrap().unwrap();
    let keys: Vec<_> = guard.keys().map(|key| key.as_bytes().to_vec()).collect();
    assert_eq!(keys, [b"b", b"c"]);
    assert!(
        nodes
            .iter()
            .all(|node| node.contains("b") && node.contains("c"))
    );
    tokio::time::sleep(MS(30_000)).await;
    guard.extend().await.expect("it is renewed");
    for node in &nodes {
        assert!(node.remove("c"));
    }
    assert!(matches!(
        guard.extend().await,
        Err(ExtendError::Lost(LossReason::KeysLost))
    ));
    theirs.shutdown().await;
    assert!(nodes.iter().all(MemoryNode::is_empty));

    let error = redlock.lock_all(["x"; 0]).await.unwrap_err();
    assert!(error.to_string().contains("nothing to lock"), "{error}");
    let error = redlock.lock_all(["x", ""]).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey(_)), "{error}");
    let many = (0..1025).map(|index| index.to_string());
    let error = redlock.lock_all(many).await.unwrap_err();
    assert!(
        error.to_string().contains("1025 keys are too many"),
        "{error}"
    );
    let error = redlock.lock_all(["x", "y"]).fenced().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidOptions(_)), "{error}");
    assert!(
        redlock.lock_all(["x", "x"]).fenced().await.is_ok(),
        "it is one"
    );
}

/// Who holds one key and asks for another is not kept from it by somebody who waits for both.
#[tokio::test(start_paused = true)]
async fn who_waits_for_several_keys_keeps_none_from_others() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let b = redlock.lock("b").await.unwrap();
    let both = tokio::spawn(
        redlock
            .lock_all(["a", "b"])
            .wait(Duration::MAX)
            .into_future(),
    );
    settle().await;
    let a = redlock.lock("a").wait(Duration::MAX);
    let a = tokio::time::timeout(MS(100), a.into_future()).await;
    let a = a.expect("nobody has it").unwrap();
    drop(b);
    settle().await;
    drop(a);
    let both = tokio::time::timeout(MS(100), both).await;
    let both = both.expect("it has its turn").unwrap().unwrap();
    // One of the keys is lost on a minority: it is put back.
    assert!(nodes[0].remove("a"));
    for _ in 0..2 {
        both.extend().await.unwrap();
        settle().await;
    }
    assert!(nodes[0].contains("a"));
}

/// Two accounts in both directions, thousands of times: nobody waits for ever.
#[tokio::test(start_paused = true)]
async fn several_keys_are_no_deadlock() {
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
                let names = keys.iter().map(|key| format!("account:{key}"));
                let lock = redlock.lock_all(names).wait(Duration::MAX);
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
                    assert_eq!(inside[*key].fetch_add(1, SeqCst), 0, "two are in");
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
    all.await.expect("nobody waits for ever");
    redlock.shutdown().await;
    assert_eq!(redlock.queue().keys, 0);
}
