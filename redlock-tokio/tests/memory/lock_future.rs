//! The future of a lock: it may be cancelled at any point, polled late, or never be polled again. Over nodes in
//! memory, on a clock that the tests move.

use std::panic::{RefUnwindSafe, UnwindSafe};

use futures::FutureExt;
use redlock_tokio::{
    Hold, LockError, LockFuture, LockGuard, MemoryNode, Redlock, ReleaseOutcome, node::Session,
};
use tokio::task::yield_now;

use crate::support::{
    MS, built,
    in_memory::{all_empty, embedded, five_nodes_and_lock, runtime},
    scripted::{Scripted, over_custom},
};

/// Polls the future of a lock up to `polls` times, with a turn of the runtime after each, and drops it.
/// Returns whether the future completed.
async fn poll_and_drop(mut future: LockFuture, polls: usize) -> bool {
    for _ in 0..polls {
        if (&mut future).now_or_never().is_some() {
            return true;
        }
        yield_now().await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_lock_cancelled_at_any_poll_leaves_no_key_behind() {
    let nodes: Vec<_> = (0..5).map(|_| MemoryNode::new()).collect();
    // Each answers after a number of turns of the runtime.
    let slow = nodes.iter().enumerate().map(|(index, node)| {
        Scripted::new(node, move |node, batch| {
            let answers = node.execute(batch);
            async move {
                for _ in 0..5 * index {
                    yield_now().await;
                }
                answers.await
            }
            .boxed()
        })
    });
    let redlock = built(over_custom(slow)).await;
    let mut finished = 0;
    let mut half_way = 0;
    for polls in 0..40 {
        if poll_and_drop(redlock.lock("k").into_future(), polls).await {
            finished += 1;
        } else if nodes.iter().any(|it| !it.is_empty()) {
            half_way += 1;
        }
        tokio::time::sleep(MS(1)).await;
        assert!(all_empty(&nodes), "after {polls} polls");
    }
    assert!(half_way > 5 && finished > 5, "{half_way} and {finished}");
}

/// The future is woken but not polled, like a branch of a `select!` while another branch runs.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_polled_is_not_renewed() {
    for is_handed_over in [false, true] {
        let (nodes, redlock) = five_nodes_and_lock().await;
        let first = match is_handed_over {
            true => Some(redlock.lock("k").await.unwrap()),
            false => None,
        };
        let mut future = redlock.lock("k").into_future();
        assert!((&mut future).now_or_never().is_none());
        if let Some(first) = first {
            assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
        }
        tokio::time::sleep(MS(9000)).await;
        assert!(!all_empty(&nodes), "nine of ten seconds have passed");
        tokio::time::sleep(MS(1001)).await;
        assert!(all_empty(&nodes), "it was renewed without a poll");
        assert_refused!(future.await, LockError::TooSlow(_));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_polled_late_is_renewed_from_then_on() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let mut future = redlock.lock("k").into_future();
    assert!((&mut future).now_or_never().is_none());
    tokio::time::sleep(MS(9000)).await;
    let guard = future.await.unwrap();
    assert!(guard.remaining() < MS(1000), "{:?}", guard.remaining());
    tokio::time::sleep(MS(1)).await;
    assert!(guard.remaining() > MS(9000), "{:?}", guard.remaining());
    tokio::time::sleep(MS(20_000)).await;
    assert!(guard.is_valid());
}

/// No task can renew the lock after its runtime has ended. So the future must not return the lock, and its
/// error must not blame the nodes.
#[test]
fn a_lock_whose_runtime_ended_before_it_was_polled_is_refused() {
    let runtime = runtime();
    let redlock = runtime.block_on(embedded());
    let mut future = redlock.lock("k").into_future();
    runtime.block_on(async {
        assert!((&mut future).now_or_never().is_none());
        // The lanes answer.
        tokio::time::sleep(MS(50)).await;
    });
    drop(runtime);
    let answer = future.now_or_never().expect("it is answered");
    assert_refused!(answer, LockError::ShutDown);
}

#[test]
fn handles_and_guards_can_cross_catch_unwind() {
    fn assert_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    assert_unwind_safe::<Redlock>();
    assert_unwind_safe::<LockGuard>();
    assert_unwind_safe::<Hold>();
    assert_unwind_safe::<LockFuture>();
}
