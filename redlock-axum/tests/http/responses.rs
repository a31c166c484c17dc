//! The table of responses in the README, row by row: status, headers, body, and whether the handler ran.

use std::time::Duration;

use axum::{
    Extension, Json, Router,
    body::to_bytes,
    http::{Method, StatusCode, header},
    response::Response,
    routing::post as routed_post,
};
use futures::future::join_all;
use redlock_axum::{CallerDeadline, LockLayer, Locked, OnLost, Problem, key, typed};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{
    Bed, MS, assert_detail, event_route, misconfigured, post, problem, rock, send, terms, text,
};

#[tokio::test(start_paused = true)]
async fn a_lock_that_stays_held_is_423_after_the_wait() {
    let it = Bed::new().await;
    for (wait, waits) in [(MS(300), MS(200)..=MS(300)), (MS(0), MS(0)..=MS(0))] {
        let app = it.app(it.layer().wait(wait));
        let guard = it.nodes.contend("event:secret-name").await.unwrap();
        let (asked, before) = (Instant::now(), it.ran());
        let response = post(&app, "/events/secret-name").await;
        assert!(waits.contains(&asked.elapsed()), "{:?}", asked.elapsed());
        let body = problem(response, 423, "locked").await;
        let (handler_ran, retry_after) = terms(&body);
        assert!(retry_after.is_some_and(|it| (1000..=2000).contains(&it)));
        assert_eq!((handler_ran, it.ran()), (false, before));
        let shown = body.to_string();
        let tells = shown.contains("secret") || shown.contains("memory:");
        assert!(!tells, "neither the key nor the nodes: {shown}");

        text(post(&app, "/events/other").await).await;
        guard.release().await;
        text(post(&app, "/events/secret-name").await).await;
        assert_eq!(it.ran(), before + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn contended_status_sets_the_status_of_contention() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let answer = async |status: u16| {
        let layer = it.layer().wait(Duration::ZERO);
        let app = it.app(layer.contended_status(StatusCode::from_u16(status).unwrap()));
        post(&app, "/events/rock").await
    };
    for (status, is_retryable) in [(409, true), (429, true), (202, false)] {
        let body = problem(answer(status).await, status, "locked").await;
        let (handler_ran, retry_after) = terms(&body);
        assert_eq!((handler_ran, retry_after.is_some()), (false, is_retryable));
    }
    let nothing = answer(204).await;
    assert_eq!(nothing.status(), 204);
    assert!(!nothing.headers().contains_key(header::CONTENT_TYPE));
    assert!(!nothing.headers().contains_key(header::RETRY_AFTER));
    let body = to_bytes(nothing.into_body(), 1000).await.unwrap();
    assert!(body.is_empty());
    assert_eq!(it.ran(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_quorum_is_503_within_a_moment() {
    let it = Bed::new().await;
    it.nodes.go_down();
    let app = it.app(it.layer().wait(MS(5000)).retry_after(MS(3500)));
    let asked = Instant::now();
    let body = problem(post(&app, "/events/rock").await, 503, "unavailable").await;
    assert!(asked.elapsed() <= MS(110), "{:?}", asked.elapsed());
    let (handler_ran, retry_after) = terms(&body);
    assert!(retry_after.is_some_and(|it| (3500..=7000).contains(&it)));
    assert_eq!((handler_ran, it.ran()), (false, 0));
    let app = it.app(it.layer().wait(Duration::ZERO).retry_after(Duration::MAX));
    let body = problem(post(&app, "/events/rock").await, 503, "unavailable").await;
    assert_eq!(terms(&body).1, Some(u64::MAX));
    it.nodes.come_up();
    text(post(&it.app(it.layer()), "/events/rock").await).await;
}

/// The handler may have written something before it asked for the lock.
#[tokio::test(start_paused = true)]
async fn the_problem_of_a_lock_by_hand_is_not_retryable() {
    let it = Bed::new().await;
    let app = |wait, ttl| {
        let redlock = it.redlock.clone();
        let by_hand = async move || {
            let _guard = redlock.lock("event:rock").wait(wait).ttl(ttl).await?;
            Ok::<_, Problem>("done")
        };
        Router::new().route("/", routed_post(by_hand))
    };
    let refused = async |app: &Router, status, kind| {
        let response = post(app, "/").await;
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
        let body = problem(response, status, kind).await;
        let handler_ran = body.get("handler_ran");
        assert_eq!(handler_ran, None, "the handler is unknown");
        assert_eq!(body["retryable"], false);
        let detail = body["detail"].as_str().unwrap();
        let invites = detail.contains("Try again") || detail.contains("LockLayer");
        assert!(!invites, "{detail}");
    };
    let (wait, ttl) = (MS(100), MS(10_000));
    assert_eq!(text(post(&app(wait, ttl), "/").await).await, "done");
    let guard = it.nodes.contend("event:rock").await.unwrap();
    refused(&app(wait, ttl), 423, "locked").await;
    guard.release().await;
    it.nodes.go_down();
    refused(&app(wait, ttl), 503, "unavailable").await;
    refused(&app(wait, Duration::ZERO), 500, "misconfigured").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_mark_its_problem_as_retryable() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let redlock = it.redlock.clone();
    let by_hand = async move || {
        let locking = redlock.lock("event:rock").wait(MS(100)).await;
        let _guard = locking.map_err(|it| Problem::from(it).retry_after(MS(1500)))?;
        Ok::<_, Problem>("done")
    };
    let app = Router::new().route("/", routed_post(by_hand));
    let body = problem(post(&app, "/").await, 423, "locked").await;
    assert_eq!(body["retry_after_ms"], 1500);
    assert_eq!(body["retryable"], true);
    assert!(body.get("handler_ran").is_none(), "{body}");
    assert_detail(&body, "has done nothing");
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_lock_was_lost_is_left_alone_or_a_500() {
    for on_lost in [OnLost::Signal, OnLost::Fail, OnLost::Cancel] {
        let it = Bed::new().await;
        let handler = async |locked: Locked| {
            locked.lost().await;
            sleep(MS(10)).await;
            "committed"
        };
        it.nodes.lose_next("event:rock");
        let app = event_route(handler, it.layer().on_lost(on_lost));
        let response = post(&app, "/events/rock").await;
        if on_lost == OnLost::Signal {
            assert!(!response.headers().contains_key(header::CACHE_CONTROL));
            assert_eq!(text(response).await, "committed");
        } else {
            let body = problem(response, 500, "lost").await;
            // No retry: the outcome is unknown.
            assert_eq!(terms(&body), (true, None));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_replace_the_problem_by_its_own_response() {
    let it = Bed::new().await;
    let layer = it.layer().wait(Duration::ZERO);
    let layer = layer.rejection(|problem: Problem| {
        let (kind, retry) = (problem.kind(), problem.retry_after_ms().is_some());
        let runs = (problem.has_handler_run(), problem.is_retryable());
        let shown = Json((problem.status().as_u16(), kind, retry, runs));
        (StatusCode::IM_A_TEAPOT, shown)
    });
    let seen = async |response: Response| -> Value {
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
        let retry_after = response.headers().get(header::RETRY_AFTER);
        assert_eq!(retry_after, None, "nothing is added");
        let body = to_bytes(response.into_body(), 1000).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    };
    let app = it.app(layer.clone());
    let guard = it.nodes.contend("event:rock").await.unwrap();
    let held = seen(post(&app, "/events/rock").await).await;
    let expected = json!([423, "urn:redlock:problem:locked", true, [false, true]]);
    assert_eq!(held, expected);
    drop(guard);
    let wrong = it.app(layer.ttl(Duration::ZERO));
    let wrong = seen(post(&wrong, "/events/rock").await).await;
    let kind = "urn:redlock:problem:misconfigured";
    assert_eq!(wrong, json!([500, kind, false, [false, false]]));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_its_caller() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let app = it.app(it.layer());
    let mut by_header = rock(Method::POST);
    let headers = by_header.headers_mut();
    headers.insert("grpc-timeout", "700m".parse().unwrap());
    let mut by_layer = rock(Method::POST);
    let deadline = CallerDeadline::after(MS(700)).unwrap();
    by_layer.extensions_mut().insert(deadline);
    let asked = Instant::now();
    for response in join_all([send(&app, by_header), send(&app, by_layer)]).await {
        problem(response, 423, "locked").await;
    }
    let waited = asked.elapsed();
    assert!((MS(500)..=MS(701)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_500_names_no_types_and_the_log_names_the_fix() {
    let it = Bed::new().await;
    #[derive(Clone)]
    struct Absent;
    let extension = key("absent", typed(|_: Extension<Absent>| 7));
    let extension = LockLayer::new(it.redlock.clone(), extension);
    let without = Router::new().route("/events/{event}", routed_post(async |_: Locked| ()));
    let wrong = it.layer().ttl(Duration::ZERO).label("sales");
    assert!(wrong.check().is_err());
    for (app, fix, shown) in [
        (it.app(wrong), "ttl", "The lock layer `sales`"),
        (it.app(extension), "Missing request extension", "`default`"),
        (
            without,
            "add a redlock_axum::LockLayer",
            "log names the fix",
        ),
    ] {
        let body = misconfigured(&app, rock(Method::POST), fix).await;
        assert_detail(&body, shown);
        let detail = body["detail"].as_str().unwrap();
        for internal in ["::", "Locked", "Layer", "Absent", "ttl", "redlock"] {
            assert!(!detail.contains(internal), "{internal} in {detail}");
        }
    }
    let optional = async |locked: Option<Locked>| format!("{}", locked.is_some());
    let without = Router::new().route("/", routed_post(optional));
    assert_eq!(text(post(&without, "/").await).await, "false");
}
