//! The layer on requests that are not HTTP, over nodes in memory.

use std::{convert::Infallible, sync::atomic::Ordering::SeqCst, time::Duration};

use futures::future::try_join_all;
use redlock_tokio::errors::OptionsError;
use redlock_tower::{CallError, ExtractKey, KeyRejection, LockLayer, LockRequest, Locked};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{MS, assert_refused, counter, idle, paused};

/// Makes twelve calls at once, with numbers from 0, and returns the largest number of calls that were inside together.
async fn crowd<K: ExtractKey<u32> + Clone + Send + Sync + 'static>(layer: LockLayer<K>) -> usize {
    let (inside, most) = (counter(), counter());
    let inner = service_fn(async |_| {
        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        sleep(MS(10)).await;
        inside.fetch_sub(1, SeqCst);
        Ok::<_, Infallible>(())
    });
    let service = layer.wait(MS(60_000)).layer(inner);
    let calls = (0..12).map(|number| service.clone().oneshot(number));
    try_join_all(calls).await.unwrap();
    most.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn only_calls_with_one_key_run_one_at_a_time() {
    let (_, redlock) = paused().await;
    let one_key = LockLayer::new(redlock.clone(), |_: &u32| "k");
    assert_eq!(crowd(one_key).await, 1);
    let different_keys = LockLayer::new(redlock.clone(), |number: &u32| *number);
    assert_eq!(crowd(different_keys).await, 12);
    let without_keys = LockLayer::new(redlock, |_: &u32| None::<u32>);
    assert_eq!(crowd(without_keys).await, 12);
}

/// Calls with one key, of which as many run at once as there are permits. A layer's number is for requests without one.
#[tokio::test(start_paused = true)]
async fn as_many_calls_run_at_once_as_there_are_permits() {
    for (of_layer, of_request, expected) in [
        (Some(3), None, 3),
        (Some(3), Some(2), 2),
        (None, Some(4), 4),
    ] {
        let (_, redlock) = paused().await;
        let layer = LockLayer::new(redlock, move |_: &u32| {
            let request = LockRequest::new("k");
            of_request.map_or(request.clone(), |permits| request.permits(permits))
        });
        let layer = of_layer.map_or(layer.clone(), |permits| layer.permits(permits));
        layer.check().unwrap();
        assert_eq!(crowd(layer).await, expected, "{of_layer:?}, {of_request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_of_several_keys_and_a_wrong_number_are_refused() {
    let (_, redlock) = paused().await;
    let two = |_: &u32| LockRequest::all(["a", "b"]);
    let layer = LockLayer::new(redlock.clone(), two).permits(2);
    let call = layer.layer(idle()).oneshot(1);
    assert_refused!(call, CallError::Key(KeyRejection::Layer(_)));
    for permits in [0, 129] {
        let layer = LockLayer::new(redlock.clone(), |_: &u32| "k").permits(permits);
        assert!(layer.check().is_err());
        let call = layer.layer(idle()).oneshot(1);
        assert_refused!(call, CallError::Misconfigured(_));
    }
}

/// A job that reads or writes, with the lock that it runs under.
struct Job {
    writes: bool,
    lock: Option<Locked>,
}

impl Job {
    fn new(writes: bool) -> Self {
        Self { writes, lock: None }
    }

    fn key(&self) -> LockRequest {
        let catalogue = LockRequest::new("catalogue");
        match self.writes {
            true => catalogue.write(),
            false => catalogue.read(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_layer_gives_tokens_to_calls_that_write() {
    let (_, redlock) = paused().await;
    let layer = LockLayer::new(redlock.clone(), Job::key).fenced(true);
    layer.check().unwrap();
    let inner = service_fn(async |job: Job| {
        let lock = job.lock.unwrap();
        Ok::<_, Infallible>((lock.is_reader(), lock.fencing_token().is_some()))
    });
    let share = |job: &mut Job, lock| job.lock = Some(lock);
    let service = layer.share_hold(share).layer(inner);
    let call = async |writes| service.clone().oneshot(Job::new(writes)).await.unwrap();
    assert_eq!(call(true).await, (false, true));
    assert_eq!(call(false).await, (true, false));

    let asks_for_a_token = |job: &Job| job.key().fenced(true);
    let service = LockLayer::new(redlock, asks_for_a_token).layer(inner);
    let call = service.oneshot(Job::new(false));
    assert_refused!(call, CallError::Misconfigured(OptionsError::FencedReader));
}

#[tokio::test(start_paused = true)]
async fn reading_several_keys_and_reading_with_permits_are_refused() {
    let (nodes, redlock) = paused().await;
    let refused = async |key: fn(&Job) -> LockRequest, permits: Option<usize>, writes| {
        let layer = LockLayer::new(redlock.clone(), key).wait(MS(0));
        let layer = permits.map_or(layer.clone(), |permits| layer.permits(permits));
        match layer.layer(idle()).oneshot(Job::new(writes)).await {
            Err(CallError::Key(KeyRejection::Layer(error))) => error,
            outcome => panic!("{outcome:?}"),
        }
    };
    let two: fn(&Job) -> LockRequest = |job| job.key().and(LockRequest::new("venue"));
    let error = refused(two, None, false).await;
    assert!(error.to_string().contains("one key"), "{error}");
    for writes in [false, true] {
        for (key, permits) in [
            (Job::key as fn(&Job) -> _, Some(2)),
            (|job| job.key().permits(2), None),
        ] {
            let error = refused(key, permits, writes).await;
            let error = error.downcast_ref::<OptionsError>();
            assert_eq!(error, Some(&OptionsError::PermitsAndReaders));
        }
    }

    // A call that writes may have several keys, and none of them may be read meanwhile.
    let layer = LockLayer::new(redlock.clone(), two).wait(MS(0));
    let service = layer.layer(idle());
    let reader = nodes.contend_as_reader("catalogue").await.unwrap();
    let call = service.clone().oneshot(Job::new(true));
    assert_refused!(call, CallError::Contended(_));
    reader.release().await;
    service.oneshot(Job::new(true)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_keys_and_options_are_errors() {
    let (_, redlock) = paused().await;
    let layer = LockLayer::new(redlock, |key: &&'static str| match *key {
        "missing" => Err(KeyRejection::request("no account given")),
        "wrong" => Err(KeyRejection::layer("no such part")),
        key => Ok(key),
    });
    let service = layer.clone().layer(idle());
    let call = |key| service.clone().oneshot(key);
    assert_refused!(call("missing"), CallError::Key(KeyRejection::Request(_)));
    assert_refused!(call("wrong"), CallError::Key(KeyRejection::Layer(_)));
    let error = call("").await.unwrap_err();
    assert!(error.to_string().contains("the key is empty"), "{error}");
    let call = layer.ttl(Duration::ZERO).layer(idle()).oneshot("k");
    assert_refused!(call, CallError::Misconfigured(_));
}

/// Otherwise a holder that needs a permit and a waiter that has it would block each other.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_holds_no_permit_of_the_inner_service() {
    let (_, redlock) = paused().await;
    let inner = ServiceBuilder::new().concurrency_limit(1).service(idle());
    let layer = LockLayer::new(redlock.clone(), |key: &&'static str| *key);
    let service = layer.wait(MS(60_000)).layer(inner);
    let guard = redlock.lock("taken").await.unwrap();
    let waiting = tokio::spawn(service.clone().oneshot("taken"));
    sleep(MS(100)).await;
    let free = timeout(MS(1000), service.oneshot("free")).await;
    free.expect("the only permit is free").unwrap();
    drop(guard);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_layer_fits_between_layers_that_box_their_errors() {
    let (_, redlock) = paused().await;
    let service = ServiceBuilder::new()
        .buffer(8)
        .timeout(MS(1000))
        .layer(LockLayer::new(redlock, |key: &u64| *key))
        .timeout(MS(100))
        .service_fn(async |key: u64| {
            sleep(MS(key)).await;
            Ok::<_, Infallible>(key)
        });
    // Without the box, `spawn` does not compile: the documentation of the layer says so.
    let service = service.boxed_clone();
    let called = service.clone();
    let task = tokio::spawn(async move { called.oneshot(7).await });
    assert_eq!(task.await.unwrap().unwrap(), 7);
    let error = service.oneshot(500).await.unwrap_err();
    assert!(error.to_string().contains("timed out"), "{error}");
}
