//! Waiting for a lock within one process: the line, the handover, giving up. On nodes in memory, by
//! tokio's clock.

mod support;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use fastrand::Rng;
use futures::{FutureExt, future::join_all};
use redlock_tokio::{
    ExtendError, LockError, LockGuard, LockOptions, LossReason, MemoryNode, Redlock,
    RedlockBuilder, ReleaseOutcome,
};
use support::MS;
use tokio::task::{JoinSet, yield_now};

async fn embedded() -> Redlock {
    Redlock::embedded().await.unwrap()
}

fn over(nodes: &[MemoryNode]) -> RedlockBuilder {
    Redlock::builder()
        .custom_nodes(nodes.to_vec())
        .clock(redlock_tokio::Clock::tokio())
}

/// Lets everything that is ready happen.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let mut entered = Vec::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for index in 0..50 {
        let (lock, tell) = (redlock.lock("k").into_future(), tell.clone());
        tasks.spawn(async move {
            let guard = lock.await.unwrap();
            tell.send(index).unwrap();
            tokio::time::sleep(MS(7)).await;
            drop(guard);
        });
        settle().await;
    }
    drop(tell);
    assert_eq!((redlock.queue().keys, redlock.queue().waiting), (1, 50));
    drop(guard);
    while let Some(index) = told.recv().await {
        entered.push(index);
    }
    assert_eq!(entered, (0..50).collect::<Vec<_>>());
    tasks.join_all().await;
    assert_eq!((redlock.queue().keys, redlock.queue().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_handed_over_is_a_guard_of_its_own() {
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
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
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
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
    assert!(goes_over(held_for(99), plain(), plain()).await);
    assert!(
        !goes_over(held_for(101), plain(), plain()).await,
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

#[tokio::test(start_paused = true)]
async fn who_gives_up_is_passed_over() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let waiters: Vec<_> = (0..4)
        .map(|_| tokio::spawn(redlock.lock("k").into_future()))
        .collect();
    settle().await;
    waiters[0].abort();
    waiters[2].abort();
    settle().await;
    assert_eq!(redlock.queue().waiting, 2);
    // The lock is handed to the second, who goes before it comes to know.
    drop(guard);
    waiters[1].abort();
    let [_, _, _, last] = <[_; 4]>::try_from(waiters).unwrap();
    drop(last.await.unwrap().unwrap());
    redlock.shutdown().await;
    assert_eq!(redlock.queue().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn time_in_the_line_is_time_waited() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let started = tokio::time::Instant::now();
    let error = redlock.lock("k").wait(MS(300)).await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    assert!(error.to_string().contains("behind others in this process"));
    let waited = started.elapsed();
    assert!(waited >= MS(300) && waited < MS(310), "{waited:?}");
    // The turn comes with little time left, and the lock is another's by then.
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    let [ours, theirs] = [
        over(&nodes).build().await.unwrap(),
        over(&nodes).build().await.unwrap(),
    ];
    let mine = ours.lock("k").no_handover().await.unwrap();
    let waiting = tokio::spawn(ours.lock("k").wait(MS(300)).into_future());
    let foreign = tokio::spawn(theirs.lock("k").into_future());
    settle().await;
    tokio::time::sleep(MS(200)).await;
    let started = tokio::time::Instant::now();
    drop(mine);
    let foreign = foreign.await.unwrap().expect("those in line stand back");
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_contended(), "{error}");
    assert!(started.elapsed() < MS(120), "{:?}", started.elapsed());
    drop(foreign);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn too_many_are_refused() {
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    let redlock = over(&nodes).max_waiters(3).build().await.unwrap();
    let guards = [
        redlock.lock("a").await.unwrap(),
        redlock.lock("b").await.unwrap(),
    ];
    let wait = |key: &str| tokio::spawn(redlock.lock(key).max_waiters(2).into_future());
    let waiting = [wait("a"), wait("a"), wait("b")];
    settle().await;
    let error = redlock.lock("a").max_waiters(2).await.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::QueueFull {
                waiting: 2,
                limit: 2
            }
        ),
        "{error}"
    );
    let error = redlock.lock("b").max_waiters(2).await.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::QueueFull {
                waiting: 3,
                limit: 3
            }
        ),
        "{error}"
    );
    drop(guards);
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
    // Held for two seconds each; the fourth would wait for six.
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let lock = redlock.lock("c").wait(MS(60_000)).into_future();
        tasks.spawn(async move {
            let _guard = lock.await.unwrap();
            tokio::time::sleep(MS(2000)).await;
        });
    }
    tokio::time::sleep(MS(2100)).await;
    assert!(redlock.expected_wait("c") > Some(MS(3900)));
    let hopeless = LockOptions::new().refuse_when_hopeless();
    let error = redlock
        .lock("c")
        .options(hopeless)
        .wait(MS(3000))
        .await
        .unwrap_err();
    assert!(
        matches!(error, LockError::Hopeless { waiting: 1, .. }),
        "{error}"
    );
    assert!(
        redlock
            .lock("c")
            .options(hopeless)
            .wait(MS(6000))
            .await
            .is_ok()
    );
    tasks.join_all().await;
    assert_eq!(redlock.expected_wait("c"), None);
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_those_who_wait() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let waiting: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(redlock.lock("k").wait(Duration::MAX).into_future()))
        .collect();
    settle().await;
    redlock.shutdown().await;
    for answer in join_all(waiting).await {
        assert!(matches!(answer.unwrap(), Err(LockError::ShutDown)));
    }
    assert!(guard.is_valid());
    drop(guard);
    assert_eq!(redlock.queue().keys, 0);
}

/// Ten thousand in one line, when the runtime ends under them: nobody is left waiting, and the stack
/// holds.
#[test]
fn the_runtime_ends_under_a_long_line() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (redlock, guard, mut waiting) = runtime.block_on(async {
        let redlock = embedded().await;
        let guard = redlock.lock("k").await.unwrap();
        let lock = || redlock.lock("k").max_waiters(usize::MAX).into_future();
        let mut waiting: Vec<_> = (0..10_000).map(|_| Box::pin(lock())).collect();
        for lock in &mut waiting {
            assert!(lock.as_mut().now_or_never().is_none());
        }
        (redlock, guard, waiting)
    });
    drop(runtime);
    for lock in &mut waiting {
        let answer = lock.as_mut().now_or_never().expect("answered");
        assert!(matches!(answer, Err(LockError::ShutDown)));
    }
    assert!(!guard.is_valid());
    drop(guard);
    assert_eq!(redlock.queue().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_locked_together_or_not_at_all() {
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
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
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
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

/// Somebody's waker panics when it is woken; the others have their turns all the same.
#[test]
fn a_waker_that_panics_costs_nobody_else_the_turn() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, as it should here");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let redlock = runtime.block_on(embedded());
    let lock = |key: &str| redlock.lock(key).into_future();
    let guard = runtime.block_on(lock("a")).unwrap();
    let mut odd = Box::pin(lock("a"));
    let waker = Waker::from(Arc::new(Panics));
    let polled = odd.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let next = runtime.spawn(lock("a"));
    runtime.block_on(settle());
    // It is handed over, and the guard's drop panics, as wakers do that must not.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(guard)));
    assert!(dropped.is_err());
    drop(odd);
    drop(runtime.block_on(next).unwrap().expect("its turn"));
    let guard = runtime.block_on(lock("a").map(Result::unwrap));
    let next = runtime.spawn(redlock.lock("a").no_handover().into_future());
    runtime.block_on(settle());
    drop(guard);
    drop(
        runtime
            .block_on(next)
            .unwrap()
            .expect("turns are given as before"),
    );
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
    let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
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
