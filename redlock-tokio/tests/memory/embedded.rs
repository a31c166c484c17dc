//! The life of a lock over nodes in memory, on a clock that the tests move: renewal, `max_hold`, loss,
//! extension, and work under the lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use futures::FutureExt;
use redlock_tokio::{
    Clock, ExtendError, LockOptions, LossReason, MemoryNode, Redlock, Timestamp,
    errors::WithLockError, test_util::TestNodes,
};

use crate::{
    odd_node::{Manner, with_three},
    support::{
        MS, built,
        in_memory::{five_nodes_and_lock, over, three_nodes},
    },
};

#[tokio::test(start_paused = true)]
async fn max_hold_applies_without_renewal() {
    let (_nodes, redlock) = five_nodes_and_lock().await;
    let options = LockOptions::new().no_renewal().max_hold(MS(15_000));
    let guard = redlock.lock("k").options(options).await.unwrap();
    tokio::time::sleep(MS(8000)).await;
    guard.extend().await.unwrap();
    tokio::time::sleep(MS(8000)).await;
    assert_refused!(guard.extend().await, ExtendError::MaxHold { .. });
    assert_eq!(guard.lost().await, LossReason::MaxHold);
}

/// Another process, which may be told by the result, finds the lock free.
#[tokio::test(start_paused = true)]
async fn with_does_the_work_and_returns_when_a_majority_of_the_nodes_is_free() {
    let (nodes, redlock) = five_nodes_and_lock().await;
    let catalogue = redlock.rw_lock("k");
    for lock in [
        redlock.lock("k"),
        redlock.lock_all(["a", "k"]),
        redlock.semaphore("k", 2).acquire(),
        catalogue.read(),
        catalogue.write(),
    ] {
        let work = lock.with(async |hold| {
            tokio::time::sleep(MS(30_000)).await;
            hold.is_valid()
        });
        assert!(work.await.unwrap());
        let free = nodes.iter().filter(|it| it.is_empty()).count();
        assert!(free >= 3, "{free} of 5");
    }
}

#[tokio::test(start_paused = true)]
async fn with_waits_for_nodes_that_do_not_answer_for_a_node_timeout_at_most() {
    for manner in [Manner::Swallows, Manner::HangsUp] {
        let (nodes, redlock) = with_three([Manner::Obeys; 3], Clock::tokio()).await;
        let set = |manner| nodes.iter().for_each(|it| it.set(manner));
        let worked = redlock.lock("k").with(async |_| {
            set(manner);
            tokio::time::Instant::now()
        });
        let waited = worked.await.unwrap().elapsed();
        assert!(waited <= MS(60), "{waited:?}");
        set(Manner::Obeys);
        redlock.shutdown(None).await;
        assert!(nodes.iter().all(|it| it.inner.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn with_drops_the_work_when_the_lock_is_lost() {
    let (nodes, redlock) = five_nodes_and_lock().await;
    let mut steps = 0;
    let work = redlock.lock("k").with(async |_| {
        while steps < 20 {
            steps += 1;
            if steps == 10 {
                nodes.iter().for_each(MemoryNode::clear);
            }
            tokio::time::sleep(MS(1000)).await;
        }
    });
    assert_refused!(work.await, WithLockError::Lost(LossReason::KeysLost));
    // It is dropped at the next extension.
    assert!((10..14).contains(&steps), "{steps}");
}

#[tokio::test(start_paused = true)]
async fn options_of_a_lock_override_those_of_the_builder() {
    let options = LockOptions::new().ttl(MS(2000)).wait(MS(300));
    let redlock = built(over(&three_nodes()).options(options)).await;
    let guard = redlock.lock("k").wait(MS(0)).await.unwrap();
    assert!(guard.remaining() <= MS(2000));
    let asked = tokio::time::Instant::now();
    assert!(redlock.lock("k").wait(MS(1000)).await.is_err());
    assert!(asked.elapsed() >= MS(900), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_test_can_lose_the_next_lock_while_the_last_release_is_on_its_way() {
    let nodes = TestNodes::new();
    let redlock = nodes.connect().await.unwrap();
    let no_handover = LockOptions::new().handover(false);
    drop(redlock.lock("k").options(no_handover).await.unwrap());
    assert!(nodes.is_locked("k"), "the release has not arrived yet");
    nodes.lose_next("k");
    let guard = redlock.lock("k").await.unwrap();
    // A task of its own goes on only when it is woken.
    let lost = tokio::spawn(async move { guard.lost().await });
    tokio::time::sleep(MS(10)).await;
    assert!(lost.is_finished(), "at once");
    assert_eq!(lost.await.unwrap(), LossReason::KeysLost);
}

/// Without a renewal and without a chance for the timers: the clock alone shows the end.
#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_clock_shows_has_its_reason() {
    let nanoseconds = Arc::new(AtomicU64::new(0));
    let clock = Clock::custom({
        let nanoseconds = Arc::clone(&nanoseconds);
        move || Timestamp::from_nanos(nanoseconds.load(SeqCst))
    });
    let nodes = [(); 3].map(|()| MemoryNode::with_clock(clock.clone()));
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    let redlock = builder.build().await.unwrap();
    let unrenewed = LockOptions::new().ttl(MS(1000)).no_renewal();
    let expired = redlock.lock("a").options(unrenewed).await.unwrap();
    let held_too_long = redlock.lock("b").max_hold(MS(500)).await.unwrap();
    assert_eq!(expired.lost().now_or_never(), None);
    nanoseconds.store(20_000_000_000, SeqCst);
    assert!(!expired.is_valid() && !held_too_long.is_valid());
    assert_eq!(expired.lost().now_or_never(), Some(LossReason::Expired));
    let reason = held_too_long.lost().now_or_never();
    assert_eq!(reason, Some(LossReason::MaxHold));
}
