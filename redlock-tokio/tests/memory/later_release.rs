//! Locks that are released a while after their holder has gone. Over nodes in memory, by tokio's clock.

use redlock_tokio::{
    ExtendError, Lock, LockOptions, LossReason, Redlock, errors::ReleaseAfterError,
};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, assert_says,
    in_memory::{Two, all_empty, blocked, set_down, settle},
    unrenewed,
};

impl Two {
    async fn is_free(&self) -> bool {
        self.other.try_lock("k").await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_ends_when_its_time_is_over_and_not_before() {
    // Shorter than the ttl of ten seconds, longer, and longer than `max_hold`.
    for time in [MS(300), MS(9898), MS(9899), MS(30_000)] {
        let two = Two::new().await;
        let lock = two.own.lock("k").max_hold(MS(20_000));
        let guard = lock.await.unwrap();
        let hold = guard.hold().view();
        let taken = Instant::now();
        sleep(MS(200)).await; // the work
        guard.release_after(time).await.unwrap();
        assert!(!hold.is_valid(), "nobody holds it");
        assert_eq!(hold.extend().await, Err(ExtendError::Released));
        // A waiter of each process.
        let waiters = [&two.own, &two.other].map(|client| {
            let lock = client.lock("k").wait(MS(60_000)).into_future();
            tokio::spawn(async move {
                let guard = lock.await.unwrap();
                let since = taken.elapsed();
                guard.release().await;
                since
            })
        });
        for waiter in waiters {
            let since = waiter.await.unwrap();
            let is_prompt = (time..time + MS(50)).contains(&since);
            assert!(is_prompt, "after {since:?} instead of {time:?}");
        }
        settle().await;
        assert!(all_empty(&two.nodes));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_time_is_over_is_handed_over_at_once() {
    let two = Two::new().await;
    let guard = two.own.lock("k").await.unwrap();
    let value = two.nodes[0].value("k");
    let waiter = tokio::spawn(two.own.lock("k").into_future());
    sleep(MS(10)).await;
    guard.release_after(MS(10)).await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(two.nodes[0].value("k"), value);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_neither_waits_for_such_a_lock_nor_releases_it() {
    let two = Two::new().await;
    let guard = two.own.lock("k").await.unwrap();
    guard.release_after(MS(5000)).await.unwrap();
    let begun = Instant::now();
    let report = two.own.shutdown(None).await;
    assert_eq!((report.held, report.abandoned), (1, 0));
    assert!(begun.elapsed() < MS(100) && !two.is_free().await);
    sleep(MS(5000)).await;
    assert_eq!(two.own.shutdown(None).await.held, 0);
    assert!(all_empty(&two.nodes));
}

/// No client would find it held.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_freed_before_its_time_ends_in_its_own_process_too() {
    let kinds: [fn(&Redlock) -> Lock; 4] = [
        |it| it.lock("k"),
        |it| it.lock("k").options(LockOptions::new().no_renewal()),
        |it| it.rw_lock("k").write(),
        |it| it.semaphore("k", 1).acquire(),
    ];
    for kind in kinds {
        for by_itself in [false, true] {
            let two = Two::new().await;
            let guard = kind(&two.own).await.unwrap();
            guard.release_after(MS(9000)).await.unwrap();
            sleep(MS(100)).await;
            assert!(kind(&two.own).wait(MS(0)).await.is_err(), "it is kept");
            let waiting = blocked(kind(&two.own).wait(MS(60_000))).await;
            let freed = Instant::now();
            let by = if by_itself { &two.own } else { &two.other };
            let inspection = by.inspect("k").await.unwrap();
            by.force_unlock(&inspection).await;
            drop(waiting.await.unwrap().unwrap());
            assert!(freed.elapsed() < MS(50), "after {:?}", freed.elapsed());
            assert!(two.own.held().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_gives_the_guard_back() {
    let two = Two::new().await;
    let guard = two.own.lock("k").await.unwrap();
    let error = guard.release_after(MS(60_000)).await.unwrap_err();
    assert_says(&error, "longer than max_ttl");
    let guard = error.into_guard();
    assert!(guard.is_valid());
    set_down(&two.nodes[..2], true);
    let error = guard.release_after(MS(30_000)).await.unwrap_err();
    assert_says(&error, "no majority");
    let guard = error.into_guard();
    assert!(guard.is_valid(), "and is renewed as before");
    set_down(&two.nodes, false);
    sleep(MS(2000)).await;
    guard.release_after(MS(30_000)).await.unwrap();

    let guard = unrenewed(two.other.lock("lost")).await;
    sleep(MS(11_000)).await;
    let outcome = guard.release_after(MS(10)).await;
    let cause = assert_refused!(outcome, ReleaseAfterError::NotExtended { cause, .. } => cause);
    assert_eq!(cause, ExtendError::Lost(LossReason::Expired));
    let guard = two.own.rw_lock("rw").read().await.unwrap();
    let error = guard.release_after(MS(10)).await.unwrap_err();
    assert!(matches!(error, ReleaseAfterError::Reader { .. }), "{error}");
    assert!(error.into_guard().is_valid());
}
