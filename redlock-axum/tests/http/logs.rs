//! Log messages of a layer, and their levels.

use std::time::Duration;

use axum::{Router, routing::post as routed_post};
use redlock_axum::{CompositeKey, LockLayer, Locked, key, path};
use tokio::time::sleep;
use tracing::Level;

use crate::support::{Bed, MS, log::Log, post, problem, text};

fn layer(it: &Bed) -> LockLayer<CompositeKey> {
    LockLayer::new(it.redlock.clone(), key("event", path("event"))).label("sales")
}

#[tokio::test(start_paused = true)]
async fn contention_is_logged_at_debug_and_no_key_is_logged() {
    let (log, _listening) = Log::with_spans();
    let it = Bed::new().await;
    let one_waits = layer(&it).max_waiters_per_key(1).max_waiters_total(8);
    let app = it.app(one_waits.wait(MS(300)));
    text(post(&app, "/events/secret").await).await;
    let guard = it.redlock.lock("event:secret").await.unwrap();
    let (one, other) = tokio::join!(post(&app, "/events/secret"), post(&app, "/events/secret"));
    problem(one, 423, "locked").await;
    problem(other, 429, "queue-full").await;
    guard.release().await;
    let _guard = it.nodes.contend("event:secret").await.unwrap();
    problem(post(&app, "/events/secret").await, 423, "locked").await;
    assert_eq!(log.louder_than(Level::DEBUG), Vec::<String>::new());
    for reason in ["the lock is taken", "the queue is full"] {
        let line = format!("a request gets no lock error={reason}");
        assert!(log.has(Level::DEBUG, &line), "{reason}");
    }
    for span in ["lock_wait", "lock_held"] {
        let line = format!("{span}{{label=\"sales\"");
        assert!(log.has(Level::DEBUG, &line), "{span}");
    }
    assert!(!log.mentions("secret"));
}

#[tokio::test(start_paused = true)]
async fn losses_misconfigurations_and_outages_are_logged_as_warnings_or_errors() {
    let (log, _listening) = Log::with_spans();
    let it = Bed::new().await;
    let lost = async |locked: Locked| {
        locked.lost().await;
        sleep(MS(10)).await;
    };
    let app = Router::new().route("/events/{event}", routed_post(lost));
    it.nodes.lose_next("event:secret");
    text(post(&app.route_layer(layer(&it)), "/events/secret").await).await;
    for line in ["a call lost its lock while it ran", "a lock was lost"] {
        let line = format!(": {line} label=\"sales\" token=");
        assert!(log.has(Level::WARN, &line), "{line}");
    }

    let wrong = it.app(layer(&it).ttl(Duration::ZERO));
    problem(post(&wrong, "/events/secret").await, 500, "misconfigured").await;
    let error = r#"label="sales" error=the lock layer is misconfigured"#;
    assert!(log.has(Level::ERROR, error));

    it.nodes.go_down();
    let closed = it.app(layer(&it).wait(MS(100)));
    problem(post(&closed, "/events/secret").await, 503, "unavailable").await;
    assert!(log.has(Level::DEBUG, "request gets no lock"));
    let open = it.app(layer(&it).wait(MS(100)).fail_open(true));
    text(post(&open, "/events/secret").await).await;
    assert!(log.has(Level::WARN, "the call runs without a lock"));
    assert!(!log.mentions("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_matches_no_route_is_a_warning_once() {
    let (log, _listening) = Log::with_spans();
    let it = Bed::new().await;
    let app = it.router().fallback(async || "fallback").layer(layer(&it));
    for _ in 0..3 {
        assert_eq!(text(post(&app, "/nowhere").await).await, "fallback");
    }
    let warning = log.only_warning();
    assert!(warning.contains("matched no route"), "{warning}");
    assert!(warning.contains("scope=\"event\""), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn two_layers_with_one_key_are_a_warning_once_and_no_error() {
    let (log, _listening) = Log::with_spans();
    let it = Bed::new().await;
    let app = it.app(layer(&it)).route_layer(layer(&it));
    for _ in 0..3 {
        text(post(&app, "/events/secret").await).await;
    }
    let warning = log.only_warning();
    assert!(warning.contains("two lock layers"), "{warning}");
    assert!(warning.contains("label=\"sales\""), "{warning}");
    assert!(!warning.contains("secret"), "{warning}");
}
