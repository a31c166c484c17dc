//! Calls whose callers go away, whose locks are lost, that want several keys or that get no lock, over nodes in
//! memory.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use redlock_tokio::{LockOptions, events::Event, test_util::TestNodes};
use redlock_tower::{
    CallError, KeyRejection, LockLayer, LockRequest, Locked, OnCancel, OnLost, TaskTracker,
};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{MS, assert_refused, counter, idle, paused, share};

#[tokio::test(start_paused = true)]
async fn a_detached_call_runs_to_its_end_without_its_caller() {
    let (_, redlock) = paused().await;
    let ended = counter();
    let tasks = TaskTracker::new();
    let layer = LockLayer::new(redlock.clone(), |(): &()| "k");
    let inner = service_fn(async |()| {
        sleep(MS(1000)).await;
        ended.fetch_add(1, SeqCst);
        Ok::<_, Infallible>(())
    });
    let service = layer.detached().tasks(tasks.clone()).layer(inner);
    let call = tokio::spawn(service.clone().oneshot(()));
    sleep(MS(10)).await;
    // A waiting call ends with its caller.
    let waiting = tokio::spawn(service.oneshot(()));
    sleep(MS(10)).await;
    assert_eq!(redlock.queue().waiting, 1);
    for caller in [call, waiting] {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    assert_eq!((redlock.queue().keys, redlock.queue().waiting), (1, 0));
    let again = redlock.try_lock("k").await;
    assert!(again.is_err(), "the lock is still held");
    tasks.close();
    tasks.wait().await;
    assert_eq!(ended.load(SeqCst), 1);
    assert!(redlock.lock("k").await.is_ok());
}

/// Drops a call one second after its start, or makes it panic, and returns for how long its lock is still kept.
async fn cancel(on_cancel: OnCancel, panics: bool) -> Duration {
    let (nodes, redlock) = paused().await;
    let layer = LockLayer::new(redlock, |(): &()| "k").ttl(MS(6000));
    let inner = service_fn(move |()| async move {
        sleep(MS(1000)).await;
        assert!(!panics, "this call panics on purpose");
        sleep(MS(60_000)).await;
        Ok::<_, Infallible>(())
    });
    let service = layer.on_cancel(on_cancel).layer(inner);
    let call = tokio::spawn(service.oneshot(()));
    sleep(MS(1001)).await;
    let is_kept = !panics || on_cancel == OnCancel::Expire;
    assert_eq!(nodes.is_locked("k"), is_kept);
    call.abort();
    let cancelled = Instant::now();
    assert!(call.await.is_err());
    drop(nodes.contend("k").await.unwrap());
    cancelled.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cut_short_releases_its_lock_at_once_or_lets_it_expire() {
    for panics in [false, true] {
        assert!(cancel(OnCancel::Release, panics).await < MS(300));
        let kept = cancel(OnCancel::Expire, panics).await;
        // One of the six seconds has passed, and a part is reserved for drift.
        assert!((MS(4500)..MS(5300)).contains(&kept), "{kept:?}");
    }
}

/// Work that needs its lock when it is dropped, as a transaction does. It may panic.
struct Transaction {
    lock: Option<Locked>,
    panics: bool,
    was_held: &'static AtomicUsize,
}

impl Future for Transaction {
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.panics, "this call panics on purpose");
        Poll::Ready(Ok(()))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let is_held = self.lock.as_ref().is_some_and(|it| it.is_valid());
        self.was_held.fetch_add(is_held.into(), SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_future_is_dropped_under_its_lock() {
    for panics in [false, true] {
        let (_, redlock) = paused().await;
        let was_held = counter();
        let layer = LockLayer::new(redlock.clone(), |_: &Option<Locked>| "k").share_hold(share);
        let inner = service_fn(move |lock: Option<Locked>| Transaction {
            lock,
            panics,
            was_held,
        });
        for layer in [layer.clone(), layer.detached()] {
            let call = tokio::spawn(layer.layer(inner).oneshot(None));
            // A panic of a detached call reaches its caller, too.
            let panicked = call.await.is_err_and(|error| error.is_panic());
            assert_eq!(panicked, panics);
            assert!(redlock.try_lock("k").await.is_ok(), "it is released");
        }
        assert_eq!(was_held.load(SeqCst), 2, "panics: {panics}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panics_does_not_hand_its_lock_over() {
    for panics in [true, false] {
        let nodes = TestNodes::new();
        // The limit for handovers does not end here, so only the panic prevents one.
        let builder = nodes.builder().handover_for(MS(60_000));
        let layer = LockLayer::new(builder.build().await.unwrap(), |_: &Option<Locked>| "k");
        let layer = layer.share_hold(share);
        for layer in [layer.clone(), layer.detached()] {
            let (tokens, mut seen) = tokio::sync::mpsc::unbounded_channel();
            let service = layer.layer(service_fn(move |lock: Option<Locked>| {
                tokens.send(lock.unwrap().token()).unwrap();
                async move {
                    sleep(MS(100)).await;
                    assert!(!panics, "this call panics on purpose");
                    Ok::<_, Infallible>(())
                }
            }));
            let calls = [(); 2].map(|()| tokio::spawn(service.clone().oneshot(None)));
            for call in calls {
                assert_eq!(call.await.is_err(), panics);
            }
            let is_handed_over = seen.recv().await == seen.recv().await;
            assert_eq!(is_handed_over, !panics);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_taken_over_is_not_lost_for_the_layer() {
    for on_lost in [OnLost::Signal, OnLost::Fail, OnLost::Cancel] {
        let (nodes, redlock) = paused().await;
        let layer = LockLayer::new(redlock, |_: &Option<Locked>| "k").share_hold(share);
        nodes.lose_next("k");
        let layer = layer.on_lost(on_lost);
        let service = layer.layer(service_fn(async |lock: Option<Locked>| {
            let guard = lock.and_then(Locked::into_owned);
            let guard = guard.expect("the call has its lock");
            guard.lost().await;
            sleep(MS(10)).await;
            Ok::<_, Infallible>("done")
        }));
        assert_eq!(service.oneshot(None).await.unwrap(), "done", "{on_lost:?}");
    }
}

/// The lock is lost after one of six seconds of work.
#[tokio::test(start_paused = true)]
async fn on_lost_decides_what_happens_to_the_call() {
    for (on_lost, fails, ends) in [
        (OnLost::Signal, false, true),
        (OnLost::Fail, true, true),
        (OnLost::Cancel, true, false),
    ] {
        let (nodes, redlock) = paused().await;
        let ended = counter();
        let layer = LockLayer::new(redlock, |(): &()| "k").on_lost(on_lost);
        let inner = service_fn(move |()| {
            let nodes = nodes.clone();
            async move {
                sleep(MS(1000)).await;
                nodes.lose_held("k");
                sleep(MS(5000)).await;
                ended.fetch_add(1, SeqCst);
                Ok::<_, Infallible>(())
            }
        });
        let outcome = layer.layer(inner).oneshot(()).await;
        let is_lost = |it: &CallError<_>| matches!(it, CallError::Lost(_)) && it.was_called();
        assert_eq!(outcome.is_err(), fails, "{on_lost:?}");
        assert!(outcome.as_ref().err().is_none_or(is_lost), "{outcome:?}");
        assert_eq!(ended.load(SeqCst), usize::from(ends), "{on_lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_can_want_several_keys_and_set_options() {
    let (nodes, redlock) = paused().await;
    let key = |keys: &Vec<&'static str>| {
        let options = LockOptions::new().wait(MS(100));
        LockRequest::all(keys.iter().copied()).options(options)
    };
    let layer = LockLayer::new(redlock.clone(), key).prefix("p:");
    let service = layer.layer(service_fn(move |_: Vec<&'static str>| {
        let held = ["p:a", "p:b"].map(|key| nodes.is_locked(key));
        async move { Ok::<_, Infallible>(held) }
    }));
    let both = service.clone().oneshot(vec!["b", "a"]).await;
    assert_eq!(both.unwrap(), [true, true]);
    let guard = redlock.lock("p:b").await.unwrap();
    let started = Instant::now();
    let call = service.clone().oneshot(vec!["a", "b"]);
    assert!(!assert_refused!(call, CallError::Contended(_)).was_called());
    assert!(started.elapsed() < MS(110), "{:?}", started.elapsed());
    drop(guard);
    assert_refused!(service.oneshot(vec![]), CallError::Key(_));
}

#[tokio::test(start_paused = true)]
async fn a_layer_limits_the_keys_of_a_call() {
    let (_, redlock) = paused().await;
    let key = |keys: &Vec<u32>| LockRequest::all(keys.iter().map(u32::to_string));
    let layer = LockLayer::new(redlock, key);
    let service = layer.clone().layer(idle());
    let repeated = (0..16).chain(0..16).collect();
    for few in [(0..16).collect(), repeated] {
        assert!(service.clone().oneshot(few).await.is_ok());
    }
    let repeated = std::iter::repeat_n(0, 1000).chain(0..17).collect();
    for many in [(0..17).collect(), (0..2000).collect(), repeated] {
        let too_many = service.clone().oneshot(many);
        assert_refused!(
            too_many,
            CallError::Key(KeyRejection::TooManyKeys { limit: 16 })
        );
    }
    let service = layer.max_keys(17).layer(idle());
    assert!(service.oneshot((0..17).collect()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_calls_fail_or_run_without_a_lock() {
    let nodes = TestNodes::new();
    let failed_open = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failed_open);
    let builder = nodes.builder().observer(move |event: &Event| {
        if let Event::FailedOpen { label } = event {
            seen.lock().unwrap().push(*label);
        }
    });
    let redlock = builder.build().await.unwrap();
    nodes.go_down();
    let layer = LockLayer::new(redlock, |(): &()| "k").wait(MS(100));
    let layer = layer.label("orders").fail_open(true).fail_open(false);
    assert_refused!(layer.layer(idle()).oneshot(()), CallError::Unavailable(_));
    assert!(failed_open.lock().unwrap().is_empty());
    let open = layer.fail_open(true).layer(idle());
    assert!(open.oneshot(()).await.is_ok());
    assert_eq!(*failed_open.lock().unwrap(), ["orders"]);
}

#[tokio::test(start_paused = true)]
async fn with_fail_open_a_call_tries_for_its_whole_wait_even_with_fail_fast() {
    let (nodes, redlock) = paused().await;
    nodes.go_down();
    let fast = LockOptions::new().fail_fast(true).wait(MS(5000));
    let layer = LockLayer::new(redlock, |(): &()| "k").options(fast);
    let service = layer.fail_open(true).layer(idle());
    // The second call knows of the outage.
    for _ in 0..2 {
        let asked = Instant::now();
        service.clone().oneshot(()).await.unwrap();
        assert!(asked.elapsed() >= MS(4800), "{:?}", asked.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_limits_the_calls_behind_other_calls() {
    let (_, redlock) = paused().await;
    let guards = [
        redlock.lock("a").await.unwrap(),
        redlock.lock("b").await.unwrap(),
    ];
    let layer = LockLayer::new(redlock.clone(), |key: &&'static str| *key).max_waiters_total(2);
    let service = layer.layer(idle());
    let waiting = ["a", "b"].map(|key| tokio::spawn(service.clone().oneshot(key)));
    sleep(MS(10)).await;
    let error = assert_refused!(service.clone().oneshot("a"), CallError::QueueFull(_));
    assert!(error.to_string().contains("max_waiters_total"), "{error}");
    assert_eq!(redlock.queue().waiting, 2, "the refused call has left");
    assert!(service.clone().oneshot("c").await.is_ok(), "a free key");
    drop(guards);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    let _guard = redlock.lock("a").await.unwrap();
    let waiting = ["a", "a"].map(|key| tokio::spawn(service.clone().oneshot(key)));
    sleep(MS(10)).await;
    assert!(service.clone().oneshot("a").await.is_err());
    for call in waiting {
        assert!(!call.is_finished(), "earlier calls have left their places");
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_can_take_the_lock_over_or_release_it_early() {
    let (_, redlock) = paused().await;
    let layer = LockLayer::new(redlock.clone(), |_: &Option<Locked>| "k").share_hold(share);
    let takes = layer
        .clone()
        .layer(service_fn(async |lock: Option<Locked>| {
            Ok::<_, Infallible>(lock.and_then(Locked::into_owned))
        }));
    let guard = takes.oneshot(None).await.unwrap();
    let guard = guard.expect("the call has its lock");
    assert!(guard.is_valid() && redlock.try_lock("k").await.is_err());
    drop(guard);
    let other = redlock.clone();
    let lets_go = layer.layer(service_fn(move |lock: Option<Locked>| {
        let other = other.clone();
        async move {
            let lock = lock.expect("it was shared");
            assert!(lock.release_early().await.is_some());
            assert!(lock.release_early().await.is_none(), "only once");
            let guard = other.try_lock("k").await;
            Ok::<_, Infallible>(guard.is_ok())
        }
    }));
    assert!(lets_go.oneshot(None).await.unwrap());
}
