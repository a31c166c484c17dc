//! The queue of waiters in one process: order, limits, cancellation and shutdown. Over nodes in memory, by
//! tokio's clock.

use std::time::Duration;

use futures::{FutureExt, future::join_all};
use redlock_tokio::{LockError, WaiterLimit};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    MS, acquired,
    in_memory::{blocked, embedded, fleet, over, runtime, set_down, settle, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_the_order_of_their_arrival() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let mut entered = Vec::new();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for index in 0..50 {
        let (lock, sender) = (redlock.lock("k").into_future(), sender.clone());
        tasks.spawn(async move {
            let guard = lock.await.unwrap();
            sender.send(index).unwrap();
            tokio::time::sleep(MS(7)).await;
            drop(guard);
        });
        settle().await;
    }
    drop(sender);
    assert_eq!((redlock.queue().keys, redlock.queue().waiting), (1, 50));
    drop(guard);
    while let Some(index) = receiver.recv().await {
        entered.push(index);
    }
    assert_eq!(entered, (0..50).collect::<Vec<_>>());
    tasks.join_all().await;
    assert_eq!((redlock.queue().keys, redlock.queue().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_is_passed_over() {
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
    // The second waiter is the successor, and it gives up before it is polled.
    drop(guard);
    waiters[1].abort();
    let [_, _, _, last] = <[_; 4]>::try_from(waiters).unwrap();
    drop(last.await.unwrap().unwrap());
    redlock.shutdown(None).await;
    assert_eq!(redlock.queue().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_waiter_has_its_turn_when_a_request_ends_without_the_lock() {
    let (_, [ours, theirs]) = fleet().await;
    let foreign = theirs.lock("k").await.unwrap();
    let wait = |wait| tokio::spawn(ours.lock("k").wait(wait).into_future());
    let asked = Instant::now();
    let [first, late, last] = [100, 300, 1000].map(|it| wait(MS(it)));
    assert!(first.await.unwrap().is_err());
    assert!(late.await.unwrap().is_err());
    assert!(asked.elapsed() < MS(310), "time in the queue counts");
    drop(foreign);
    assert!(last.await.unwrap().is_ok(), "its turn");
}

#[tokio::test(start_paused = true)]
async fn waiters_beyond_the_limits_are_refused() {
    let nodes = three_nodes();
    let redlock = over(&nodes).max_waiters_total(3).build().await.unwrap();
    let guards = acquired(["a", "b"].map(|key| redlock.lock(key))).await;
    let mut queued = redlock.lock("b").into_future();
    assert!(!queued.is_queued());
    assert!(futures::poll!(&mut queued).is_pending() && queued.is_queued());
    drop(queued);
    let mut asking = redlock.lock("c").into_future();
    assert!(futures::poll!(&mut asking).is_pending() && !asking.is_queued());
    drop(asking);
    let wait = |key: &str| tokio::spawn(redlock.lock(key).max_waiters_per_key(2).into_future());
    let waiting = [wait("a"), wait("a"), wait("b")];
    settle().await;
    let limit_of = async |key: &str| {
        let outcome = redlock.lock(key).max_waiters_per_key(2).await;
        assert_refused!(
            outcome,
            LockError::QueueFull { waiting, limit, limited_by } => (waiting, limit, limited_by)
        )
    };
    assert_eq!(limit_of("a").await, (2, 2, WaiterLimit::PerKey));
    assert_eq!(limit_of("b").await, (3, 3, WaiterLimit::Total));
    drop(guards);
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
}

/// Eight holders have held the lock for two seconds each, and so does the first of the new waiters.
#[tokio::test(start_paused = true)]
async fn the_expected_wait_follows_the_last_holds() {
    let redlock = embedded().await;
    let hold = |wait| {
        let lock = redlock.lock("c").wait(wait).into_future();
        async move {
            let guard = lock.await?;
            tokio::time::sleep(MS(2000)).await;
            drop(guard);
            Ok::<_, LockError>(())
        }
    };
    for _ in 0..8 {
        assert_eq!(redlock.expected_wait("c"), None, "nobody waits");
        hold(MS(0)).await.unwrap();
    }
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        tasks.spawn(hold(MS(9000)));
    }
    tokio::time::sleep(MS(2100)).await;
    let by_then = redlock.expected_wait("c");
    assert_eq!(by_then, Some(MS(6900)), "all five are served");
    for served in tasks.join_all().await {
        served.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_all_waiters() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let waiting: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(redlock.lock("k").wait(Duration::MAX).into_future()))
        .collect();
    settle().await;
    let report = redlock.shutdown(None).await;
    assert_eq!((report.abandoned, report.held), (0, 1));
    for answer in join_all(waiting).await {
        assert!(matches!(answer.unwrap(), Err(LockError::ShutDown)));
    }
    guard.extend().await.expect("it is kept");
    drop(guard);
    assert_eq!(redlock.queue().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_over_before_a_shutdown_and_not_taken_is_refused() {
    let redlock = embedded().await;
    let guard = redlock.lock("k").await.unwrap();
    let mut waiting = redlock.lock("k").into_future();
    assert!((&mut waiting).now_or_never().is_none());
    drop(guard);
    assert_eq!(redlock.queue().waiting, 0, "it was handed over");
    assert_eq!(redlock.shutdown(None).await.held, 1);
    let answer = waiting.await;
    assert!(matches!(answer, Err(LockError::ShutDown)), "{answer:?}");
    assert_eq!(redlock.shutdown(None).await.held, 0);
    assert_eq!(redlock.queue().keys, 0);
}

/// Ten thousand waiters for one key are answered without a deep recursion.
#[test]
fn waiters_are_answered_when_the_runtime_ends() {
    let runtime = runtime();
    let (redlock, guard, mut waiting) = runtime.block_on(async {
        let redlock = embedded().await;
        let guard = redlock.lock("k").await.unwrap();
        let lock = || redlock.lock("k").max_waiters_per_key(usize::MAX);
        let waiting = (0..10_000).map(|_| Box::pin(lock().into_future()));
        let mut waiting: Vec<_> = waiting.collect();
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
async fn a_waiter_without_a_turn_is_told_of_the_holder_or_why_the_nodes_do_not_vote() {
    let (nodes, [redlock]) = fleet().await;
    let _guard = redlock.lock("held").await.unwrap();
    set_down(&nodes, true);
    // A lane notices with the next request that its node is down.
    let _asking = blocked(redlock.lock("k")).await;
    let outcome = redlock.lock("k").wait(MS(300)).await;
    let attempts = assert_refused!(outcome, LockError::NoQuorum(it) => it);
    assert_eq!((attempts.count, attempts.nodes.len()), (0, 3));
    let outcome = redlock.lock("held").wait(MS(300)).await;
    assert_refused!(outcome, LockError::Contended(_));
}
