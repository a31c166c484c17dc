//! Locks that are held until the response's body has ended.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderMap, Response, header::CONTENT_LENGTH};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use redlock_tokio::{Redlock, RedlockBuilder, test_util::TestNodes};
use redlock_tower::{CallError, HoldBody, LockLayer, OnCancel, OnLost, TaskTracker};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

const SECS: fn(u64) -> Duration = Duration::from_secs;

type TestBody = BoxBody<Bytes, &'static str>;

/// Responds with this body under a lock of six seconds, which is left to expire if the body is dropped early.
async fn respond(
    redlock: &Redlock,
    body: TestBody,
    length: Option<u64>,
) -> Response<HoldBody<TestBody>> {
    let body = Arc::new(Mutex::new(Some(body)));
    let inner = service_fn(move |()| {
        let body = body.lock().unwrap().take().expect("one call");
        let mut response = Response::new(body);
        if let Some(length) = length {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        async { Ok::<_, Infallible>(response) }
    });
    let layer = LockLayer::new(redlock.clone(), |(): &()| "k")
        .ttl(SECS(6))
        .on_cancel(OnCancel::Expire)
        .hold_until_body_end(SECS(60));
    layer.layer(inner).oneshot(()).await.unwrap()
}

/// A body may hand its lock over for as long as it is read.
fn builder(nodes: &TestNodes) -> RedlockBuilder {
    nodes.builder().handover_for(SECS(3))
}

/// Returns a body of three frames with a byte each, and this last frame.
fn rows(last: Option<Result<Frame<Bytes>, &'static str>>) -> TestBody {
    let rows = stream::iter(["a", "b", "c"]).map(|row| Ok(Frame::data(Bytes::from(row))));
    BodyExt::boxed(StreamBody::new(rows.chain(stream::iter(last))))
}

/// Reads this many frames, drops the body, and returns for how long the lock is still held.
async fn held_after(frames: usize, body: TestBody, length: Option<u64>) -> Duration {
    let nodes = TestNodes::new();
    let redlock = builder(&nodes).build().await.unwrap();
    let mut body = respond(&redlock, body, length).await.into_body();
    for _ in 0..frames {
        let _ = body.frame().await;
    }
    drop(body);
    let dropped = Instant::now();
    drop(nodes.contend("k").await);
    dropped.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_at_every_kind_of_body_end() {
    let empty = || BodyExt::boxed(Empty::new().map_err(|never: Infallible| match never {}));
    let full = Full::new(Bytes::from("abc")).map_err(|never: Infallible| match never {});
    let mut trailers = HeaderMap::new();
    trailers.insert("rows", 3.into());
    for (what, frames, body, length) in [
        ("the end of the stream", 4, rows(None), None),
        (
            "trailers",
            5,
            rows(Some(Ok(Frame::trailers(trailers)))),
            None,
        ),
        ("an error", 4, rows(Some(Err("no more"))), None),
        ("the length in the head", 3, rows(None), Some(3)),
        ("no frame read, as for HEAD", 0, rows(None), Some(3)),
        ("no frames", 0, empty(), None),
        ("the last frame", 1, BodyExt::boxed(full), None),
    ] {
        let held = held_after(frames, body, length).await;
        assert!(held < SECS(1), "{what}: {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_early_has_not_ended() {
    for (what, frames, length) in [
        ("some frames", 1, None),
        ("all frames, without a length in the head", 3, None),
        ("fewer bytes than the head says", 2, Some(3)),
        ("a huge length in the head", 1, Some(u64::MAX)),
    ] {
        let held = held_after(frames, rows(None), length).await;
        assert!((SECS(4)..=SECS(6)).contains(&held), "{what}: {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_reads_keeps_its_lock_up_to_the_limit_and_is_whole() {
    let nodes = TestNodes::new();
    let layer = LockLayer::new(nodes.connect().await.unwrap(), |(): &()| "k");
    let inner = service_fn(async |()| Ok::<_, Infallible>(Response::new(rows(None))));
    let service = layer.hold_until_body_end(SECS(20)).layer(inner);
    let response = service.oneshot(()).await.unwrap();
    sleep(SECS(19)).await;
    assert!(nodes.is_locked("k"));
    sleep(SECS(2)).await;
    assert!(!nodes.is_locked("k"));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "abc");
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_body_that_panics_is_kept_until_it_expires() {
    for panics in [true, false] {
        let nodes = TestNodes::new();
        let redlock = builder(&nodes).build().await.unwrap();
        let frames = stream::iter([()]).map(move |()| {
            assert!(!panics, "this body panics on purpose");
            Ok(Frame::data(Bytes::from("row")))
        });
        let body = BodyExt::boxed(StreamBody::new(frames));
        let response = respond(&redlock, body, Some(3)).await;
        let mut body = Box::pin(response.into_body());
        let next = tokio::spawn({
            let redlock = redlock.clone();
            async move { redlock.lock("k").ttl(SECS(6)).wait(SECS(60)).await }
        });
        while redlock.queue().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let mut cx = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(&mut cx)));
        assert_eq!(polled.is_err(), panics);
        let ended = Instant::now();
        let guard = next.await.unwrap().unwrap();
        assert_eq!(ended.elapsed() > SECS(4), panics);
        drop((guard, body));
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_cuts_the_body_off_unless_the_layer_only_signals_it() {
    for on_lost in [OnLost::Signal, OnLost::Fail, OnLost::Cancel] {
        let nodes = TestNodes::new();
        let redlock = nodes.connect().await.unwrap();
        let inner = service_fn(async |()| {
            let row = stream::once(async {
                sleep(SECS(30)).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from("row")))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(row))))
        });
        let layer = LockLayer::new(redlock, |(): &()| "k").on_lost(on_lost);
        nodes.lose_next("k");
        let held = layer.hold_until_body_end(SECS(60)).layer(inner);
        let begun = Instant::now();
        let body = held.oneshot(()).await.unwrap().into_body().collect().await;
        if on_lost == OnLost::Signal {
            assert_eq!(body.unwrap().to_bytes(), "row");
        } else {
            assert!(matches!(body, Err(CallError::Lost(_))), "{on_lost:?}");
            assert!(begun.elapsed() < SECS(30), "{:?}", begun.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_counts_as_running_until_its_body_has_ended() {
    let nodes = TestNodes::new();
    let redlock = nodes.connect().await.unwrap();
    let tasks = TaskTracker::new();
    let layer = LockLayer::new(redlock, |(): &()| "k").detached();
    let layer = layer.tasks(tasks.clone()).hold_until_body_end(SECS(60));
    let inner = service_fn(async |()| Ok::<_, Infallible>(Response::new(rows(None))));
    let response = layer.layer(inner).oneshot(()).await.unwrap();
    tasks.close();
    let ended = tasks.wait().now_or_never();
    assert!(ended.is_none(), "it still has its lock");
    assert!(nodes.is_locked("k"));
    response.into_body().collect().await.unwrap();
    tasks.wait().now_or_never().unwrap();
}
