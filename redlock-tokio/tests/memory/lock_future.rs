//! The future of a lock: it may be polled late, or never be polled again. Over nodes in memory, on a
//! clock that the tests move.

use std::panic::{RefUnwindSafe, UnwindSafe};

use futures::FutureExt;
use redlock_tokio::{Hold, LockError, LockFuture, LockGuard, Redlock, ReleaseOutcome};

use crate::support::{
    MS,
    in_memory::{all_empty, embedded, five_nodes_and_lock, runtime},
};

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
        let error = future.await.unwrap_err();
        assert!(error.to_string().contains("was not polled"), "{error}");
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

#[tokio::test(start_paused = true)]
async fn a_lock_wakes_the_task_that_polls_it_last() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let guard = redlock.lock("k").await.unwrap();
    let mut waiting = redlock.lock("k").into_future();
    assert!((&mut waiting).now_or_never().is_none(), "it is held");
    let task = tokio::spawn(waiting);
    tokio::task::yield_now().await;
    drop(guard);
    let woken = tokio::time::timeout(MS(1), task).await;
    drop(woken.expect("the task is woken").unwrap().unwrap());
}
