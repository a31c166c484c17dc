//! A lock that goes from one holder to the next within one process, without a word to the nodes. On
//! nodes in memory, by tokio's clock.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use futures::FutureExt;
use redlock_tokio::{ExtendError, LockGuard, LockOptions, LossReason, MemoryNode, ReleaseOutcome};
use support::{
    MS,
    in_memory::{embedded, over, settle, three_nodes},
};
use tokio::task::JoinSet;

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_handed_over_is_a_guard_of_its_own() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let first = redlock.lock("k").max_hold(MS(60_000)).await.unwrap();
    let old = first.hold().clone();
    let value = nodes[0].value("k");
    let waiting = tokio::spawn(redlock.lock("k").max_hold(MS(60_000)).into_future());
    settle().await;
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(nodes[0].value("k"), value, "no node was told");
    assert!(second.is_valid() && !old.is_valid());
    assert_eq!(old.remaining(), Duration::ZERO);
    assert_eq!(old.extend().await, Err(ExtendError::Released));
    second.extend().await.unwrap();
    // Renewed for as long as any other, and then lost; which is nothing to the one before.
    tokio::time::sleep(MS(59_000)).await;
    assert!(second.is_valid());
    assert_eq!(second.lost().await, LossReason::MaxHold);
    assert!(old.lost().now_or_never().is_none());
    drop(second);
    redlock.shutdown().await;
    assert!(nodes.iter().all(MemoryNode::is_empty));
}

/// Returns whether the lock went from one to the next without being released.
async fn goes_over(first: impl AsyncFnOnce(LockGuard), of: LockOptions, to: LockOptions) -> bool {
    let nodes = three_nodes();
    let redlock = over(&nodes).max_ttl(MS(60_000)).build().await.unwrap();
    let guard = redlock.lock("k").options(of).await.unwrap();
    let token = guard.token();
    let waiting = tokio::spawn(redlock.lock("k").options(to).into_future());
    settle().await;
    first(guard).await;
    waiting.await.unwrap().unwrap().token() == token
}

#[tokio::test(start_paused = true)]
async fn only_what_is_sound_is_handed_over() {
    let plain = LockOptions::new;
    let dropped = async |guard| drop(guard);
    assert!(goes_over(dropped, plain(), plain()).await);
    assert!(goes_over(dropped, plain(), plain().wait(MS(9000))).await);
    assert!(!goes_over(dropped, plain().no_handover(), plain()).await);
    assert!(!goes_over(dropped, plain(), plain().no_handover()).await);
    assert!(!goes_over(dropped, plain().max_handovers(0), plain()).await);
    assert!(!goes_over(dropped, plain(), plain().ttl(MS(9000))).await);
    assert!(!goes_over(dropped, plain(), plain().max_hold(MS(9))).await);
    assert!(!goes_over(dropped, plain(), plain().renew_every(MS(9))).await);

    let held_for = |time| {
        async move |guard| {
            tokio::time::sleep(MS(time)).await;
            drop(guard);
        }
    };
    assert!(goes_over(held_for(19), plain(), plain()).await);
    assert!(
        !goes_over(held_for(21), plain(), plain()).await,
        "for others"
    );
    let long = plain().handover_for(MS(60_000)).wait(MS(60_000));
    assert!(goes_over(held_for(4900), long, long).await);
    assert!(!goes_over(held_for(5100), long, long).await, "half the ttl");
    let faint = long.no_renewal();
    assert!(
        !goes_over(held_for(4950), faint, faint).await,
        "little left"
    );

    let panics = async |guard: LockGuard| {
        let panicking = tokio::spawn(async move {
            let _guard = guard;
            panic!("a holder that panics, as it should here");
        });
        assert!(panicking.await.unwrap_err().is_panic());
    };
    assert!(!goes_over(panics, plain(), plain()).await);
    let lost = async |guard: LockGuard| {
        guard.lost().await;
        drop(guard);
    };
    let short = plain().max_hold(MS(9)).wait(MS(60_000));
    assert!(!goes_over(lost, short, short).await);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lock_has_a_larger_token_each_time() {
    let redlock = embedded().await;
    let first = redlock.lock("k").fenced().await.unwrap();
    let waiting = tokio::spawn(redlock.lock("k").fenced().into_future());
    let unfenced = tokio::spawn(redlock.lock("k").into_future());
    settle().await;
    let token = first.fencing_token();
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    assert!(token.is_some() && second.fencing_token() > token);
    drop(second);
    assert_eq!(unfenced.await.unwrap().unwrap().fencing_token(), None);
}

/// How the walk below keeps others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Lock,
    /// Everybody has a key of his own.
    Nothing,
}

/// Tasks that wait, give up, hold, extend and release at random, from three processes as it were.
/// Returns how often somebody was not alone, and how often there was a handover.
async fn walk(seed: u64, by: By) -> (usize, usize) {
    let nodes = three_nodes();
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(over(&nodes).build().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    let inside = Arc::new(AtomicUsize::new(0));
    for task in 0..12 {
        let (redlock, inside) = (locks[task % 3].clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let mut rng = Rng::with_seed(seed << 8 | task as u64);
            let (mut crowds, mut handovers) = (0, 0);
            for _ in 0..40 {
                let key = match by {
                    By::Lock => "k".to_owned(),
                    By::Nothing => task.to_string(),
                };
                let lock = redlock.lock(key).ttl(MS(900)).wait(MS(rng.u64(0..3000)));
                let patience = MS(rng.u64(1..2000));
                let Ok(Ok(guard)) = tokio::time::timeout(patience, lock.into_future()).await else {
                    continue;
                };
                let alone = inside.fetch_add(1, SeqCst) == 0;
                crowds += usize::from(!alone);
                let work = MS(rng.u64(0..60));
                tokio::select! {
                    _ = guard.lost() => {}
                    () = tokio::time::sleep(work) => {}
                }
                if rng.bool() {
                    let _ = guard.extend().await;
                }
                inside.fetch_sub(1, SeqCst);
                match rng.u8(0..3) {
                    0 => drop(guard),
                    1 => {
                        let outcome = guard.release().await.outcome;
                        handovers += usize::from(outcome == ReleaseOutcome::HandedOver);
                    }
                    _ => tokio::spawn(async move { drop(guard) }).await.unwrap(),
                }
                tokio::time::sleep(MS(rng.u64(0..5))).await;
            }
            (crowds, handovers)
        });
    }
    let results = tasks.join_all().await;
    for redlock in locks {
        let report = redlock.shutdown().await;
        assert_eq!((report.held, report.abandoned), (0, 0), "seed {seed}");
        assert_eq!(
            (redlock.queue().keys, redlock.queue().waiting),
            (0, 0),
            "seed {seed}"
        );
    }
    assert!(
        nodes.iter().all(MemoryNode::is_empty),
        "seed {seed}: keys are left"
    );
    let sum = |of: fn(&(usize, usize)) -> usize| results.iter().map(of).sum();
    (sum(|it| it.0), sum(|it| it.1))
}

#[tokio::test(start_paused = true)]
async fn whatever_they_do_each_is_alone() {
    let mut handovers = 0;
    for seed in 0..20 {
        let (crowds, handed_over) = walk(seed, By::Lock).await;
        assert_eq!(crowds, 0, "seed {seed}: two were in at once");
        handovers += handed_over;
    }
    assert!(handovers > 100, "{handovers}");
    let (crowds, _) = walk(0, By::Nothing).await;
    assert!(crowds > 0, "it is noticed when they are not");
}
