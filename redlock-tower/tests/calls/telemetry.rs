//! Metrics of a layer, behind the feature `metrics`.

use std::{collections::BTreeMap, convert::Infallible, future::pending, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redlock_tokio::{Redlock, test_util::TestNodes};
use redlock_tower::{LockLayer, LockRequest, OnLost, TaskTracker};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::idle;

/// Returns what was counted since the last call: names with their labels, and values. The value of a histogram is its
/// number of entries.
fn look(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let all = snapshotter.snapshot().into_vec();
    let read = |value: DebugValue| match value {
        DebugValue::Counter(count) => count as f64,
        DebugValue::Gauge(value) => value.into_inner(),
        DebugValue::Histogram(values) => values.len() as f64,
    };
    let entries = all.into_iter().map(|(key, _, _, value)| {
        let labels = key.key().labels();
        let labels = labels.map(|it| format!(" {}={}", it.key(), it.value()));
        let name = key.key().name().to_owned() + &labels.collect::<String>();
        (name, read(value))
    });
    entries.collect()
}

/// Reads what is counted on this thread, for as long as it lives.
struct Bed {
    nodes: TestNodes,
    snapshotter: Snapshotter,
    _local: LocalRecorderGuard<'static>,
}

impl Bed {
    fn new() -> Self {
        let recorder = &*Box::leak(Box::new(DebuggingRecorder::new()));
        Self {
            nodes: TestNodes::new(),
            snapshotter: recorder.snapshotter(),
            _local: metrics::set_default_local_recorder(recorder),
        }
    }

    /// Returns a layer whose calls are their own keys.
    async fn layer(&self) -> LockLayer<fn(&&'static str) -> &'static str> {
        Self::layer_over(&self.nodes.connect().await.unwrap())
    }

    fn layer_over(redlock: &Redlock) -> LockLayer<fn(&&'static str) -> &'static str> {
        let key: fn(&&'static str) -> &'static str = |key| *key;
        LockLayer::new(redlock.clone(), key)
            .label("orders")
            .wait(Duration::from_secs(1))
    }

    /// Returns what was counted since the last call under these names and labels. Calls are exclusive unless they say
    /// otherwise.
    fn counts<const N: usize>(&self, names: [&str; N]) -> [Option<f64>; N] {
        let seen = look(&self.snapshotter);
        assert!(seen.keys().all(|name| !name.contains("secret")), "{seen:?}");
        names.map(|name| {
            let (name, labels) = name.split_once(' ').unwrap_or((name, ""));
            let says_how = labels.contains("share=");
            let share = if says_how { "" } else { " share=exclusive" };
            let name = format!("redlock_layer_{name} label=orders {labels}{share}");
            seen.get(&name.replace("  ", " ")).copied()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn requests_waits_and_holds_are_counted_without_keys() {
    let it = Bed::new();
    let service = it.layer().await;
    let service = service.layer(idle());
    service.clone().oneshot("secret").await.unwrap();
    let guard = it.nodes.contend("secret").await.unwrap();
    assert!(service.clone().oneshot("secret").await.is_err());
    assert!(service.clone().oneshot("").await.is_err());
    let waiting = tokio::spawn(service.oneshot("secret"));
    sleep(Duration::from_millis(10)).await;
    let counts = it.counts([
        "requests_total result=acquired",
        "requests_total result=contended",
        "requests_total result=invalid",
        "wait_seconds result=contended",
        "hold_seconds",
        "waiting_requests",
    ]);
    assert_eq!(counts, [Some(1.0); 6]);

    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let counts = it.counts(["waiting_requests", "requests_total result=cancelled"]);
    assert_eq!(counts, [Some(-1.0), Some(1.0)], "one less waits");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn readers_writers_and_permits_are_counted_apart() {
    let it = Bed::new();
    let reader = it.nodes.contend_as_reader("secret").await.unwrap();
    let layer = it.layer().await.with_key(|share: &&'static str| {
        let secret = LockRequest::new("secret");
        match *share {
            "reader" => secret.read(),
            "writer" => secret.write(),
            "permit" => secret.permits(2),
            _ => secret,
        }
    });
    let service = layer.layer(idle());
    for (share, is_acquired) in [
        ("reader", true),
        ("writer", false),
        ("permit", true),
        ("exclusive", false),
    ] {
        let outcome = service.clone().oneshot(share).await;
        assert_eq!(outcome.is_ok(), is_acquired, "{share}");
        let result = if is_acquired { "acquired" } else { "contended" };
        let counts = it.counts([
            &*format!("requests_total result={result} share={share}"),
            &*format!("wait_seconds result={result} share={share}"),
            &*format!("hold_seconds share={share}"),
            &*format!("waiting_requests share={share}"),
        ]);
        let held = is_acquired.then_some(1.0);
        assert_eq!(counts, [Some(1.0), Some(1.0), held, Some(0.0)], "{share}");
    }
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn refused_calls_and_calls_without_a_lock_are_counted() {
    let it = Bed::new();
    let redlock = it.nodes.connect().await.unwrap();
    let layer = Bed::layer_over(&redlock);
    let guard = redlock.lock("secret").await.unwrap();
    let full = layer.clone().max_waiters_total(0).layer(idle());
    assert!(full.oneshot("secret").await.is_err());
    guard.release().await;
    let no_key = |_: &&'static str| Err::<String, _>("no key");
    let none = layer.clone().with_key(no_key).layer(idle());
    assert!(none.oneshot("secret").await.is_err());
    it.nodes.go_down();
    let closed = layer.clone().layer(idle());
    assert!(closed.oneshot("secret").await.is_err());
    let open = layer.fail_open().layer(idle());
    assert!(open.oneshot("secret").await.is_ok());
    let counts = it.counts([
        "requests_total result=queue_full",
        "requests_total result=invalid share=none",
        "requests_total result=unavailable",
        "requests_total result=failed_open",
        "hold_seconds",
    ]);
    assert_eq!(counts, [Some(1.0), Some(1.0), Some(1.0), Some(1.0), None]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_once_in_the_call_and_in_the_body() {
    for on_lost in [OnLost::Signal, OnLost::Fail, OnLost::Cancel] {
        for in_body in [false, true] {
            let it = Bed::new();
            let layer = it.layer().await.on_lost(on_lost);
            let long = Duration::from_secs(30);
            let inner = service_fn(move |_: &'static str| async move {
                sleep(if in_body { Duration::ZERO } else { long }).await;
                let body = futures::stream::once(async move {
                    sleep(long).await;
                    Ok::<_, Infallible>(Frame::data(Bytes::from("row")))
                });
                Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(body))))
            });
            it.nodes.lose_next("secret");
            let held = layer.hold_until_body_end(2 * long).layer(inner);
            let body = match held.oneshot("secret").await {
                Ok(response) => response.into_body().collect().await.map(|_| ()),
                Err(error) => Err(error),
            };
            let case = format!("{on_lost:?}, in the body: {in_body}");
            assert_eq!(body.is_ok(), on_lost == OnLost::Signal, "{case}");
            let counts = it.counts(["locks_lost_total", "hold_seconds"]);
            assert_eq!(counts, [Some(1.0); 2], "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_call_that_hangs_is_counted_when_it_happens() {
    for on_lost in [OnLost::Signal, OnLost::Fail] {
        let it = Bed::new();
        let layer = it.layer().await.on_lost(on_lost);
        let layer = layer.max_hold(Duration::from_secs(1)).detached();
        let inner = service_fn(|_: &'static str| pending::<Result<(), Infallible>>());
        let call = tokio::spawn(layer.layer(inner).oneshot("secret"));
        sleep(Duration::from_secs(60)).await;
        let counts = it.counts(["locks_lost_total", "hold_seconds"]);
        assert_eq!(counts, [Some(1.0), None], "it still runs");
        call.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_until_the_body_has_ended() {
    let it = Bed::new();
    let inner = service_fn(async |_: &'static str| {
        let body = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("row")))]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(body)))
    });
    let tasks = TaskTracker::new();
    let layer = it.layer().await;
    let layer = layer
        .hold_until_body_end(Duration::from_secs(60))
        .detached()
        .tasks(tasks.clone());
    let response = layer.layer(inner).oneshot("secret").await.unwrap();
    tasks.close();
    let ended = tasks.wait().now_or_never();
    assert!(ended.is_none(), "it still has its lock");
    assert_eq!(it.counts(["hold_seconds"]), [None]);
    response.into_body().collect().await.unwrap();
    tasks.wait().now_or_never().unwrap();
    let counts = it.counts(["locks_lost_total", "hold_seconds"]);
    assert_eq!(counts, [None, Some(1.0)]);
}
