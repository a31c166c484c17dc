//! What a layer counts, behind the feature `metrics`.

#![cfg(feature = "metrics")]

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redlock_tokio::Redlock;
use redlock_tower::LockLayer;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};

/// What has been counted since the last look: names with their labels, and values; of histograms how
/// many values there are.
fn look(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let all = snapshotter.snapshot().into_vec();
    let read = |value: DebugValue| match value {
        DebugValue::Counter(count) => count as f64,
        DebugValue::Gauge(value) => value.into_inner(),
        DebugValue::Histogram(values) => values.len() as f64,
    };
    all.into_iter()
        .map(|(key, _, _, value)| {
            let labels = key.key().labels();
            let labels: Vec<_> = labels
                .map(|it| format!("{}={}", it.key(), it.value()))
                .collect();
            (
                format!("{} {}", key.key().name(), labels.join(" ")),
                read(value),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn requests_waits_and_holds_are_counted_and_keys_are_not_named() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let redlock = Redlock::embedded().await.unwrap();
    let layer = LockLayer::new(redlock.clone(), |key: &&'static str| *key)
        .policy("orders")
        .wait(Duration::from_secs(1));
    let service = layer.layer(service_fn(async |_: &'static str| Ok::<_, Infallible>(())));
    service.clone().oneshot("secret").await.unwrap();
    let guard = redlock.lock("secret").await.unwrap();
    assert!(service.clone().oneshot("secret").await.is_err());
    let waiting = tokio::spawn(service.oneshot("secret"));
    sleep(Duration::from_millis(10)).await;

    let seen = look(&snapshotter);
    let count = |name: &str| seen.get(name).copied();
    let acquired = "redlock_requests_total policy=orders result=acquired";
    let contended = "redlock_requests_total policy=orders result=contended";
    assert_eq!(
        [count(acquired), count(contended)],
        [Some(1.0); 2],
        "{seen:?}"
    );
    assert_eq!(
        count("redlock_queued_requests policy=orders"),
        Some(1.0),
        "{seen:?}"
    );
    assert_eq!(
        count("redlock_hold_duration_seconds policy=orders"),
        Some(1.0)
    );
    assert!(seen.keys().all(|name| !name.contains("secret")), "{seen:?}");

    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let seen = look(&snapshotter);
    let queued = seen.get("redlock_queued_requests policy=orders");
    assert_eq!(queued, Some(&-1.0), "one less than before: {seen:?}");
    let cancelled = "redlock_requests_total policy=orders result=cancelled";
    assert_eq!(seen.get(cancelled), Some(&1.0), "{seen:?}");
    drop(guard);
}
