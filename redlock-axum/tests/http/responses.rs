//! The table of responses in the guide, row by row: status, headers, body, and whether the handler ran.

use std::{any::Any, time::Duration};

use axum::{
    Json, Router,
    body::to_bytes,
    http::{Method, StatusCode, header},
    response::Response,
    routing::post as routed_post,
};
use redlock_axum::{CompositeKey, LockLayer, Locked, OnLost, Problem};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{
    Bed, MS, assert_detail, event_route, misconfigured, post, problem, rock, send, terms, text,
};

/// What keeps a request for the event `rock` from its lock.
enum Obstacle {
    None,
    /// Another process, which works on the event.
    Writer,
    Reader,
    /// Two that share the event.
    Permits,
    /// A request that waits already.
    Waiter,
    Outage,
}

type Layer = LockLayer<CompositeKey>;

/// Puts an obstacle in the way of a request, and returns what must be kept for it to stay there.
async fn obstruct(it: &Bed, app: &Router, obstacle: Obstacle) -> Vec<Box<dyn Any>> {
    match obstacle {
        Obstacle::None => Vec::new(),
        Obstacle::Writer => vec![Box::new(it.nodes.contend("event:rock").await.unwrap())],
        Obstacle::Reader => {
            let reader = it.nodes.contend_as_reader("event:rock").await;
            vec![Box::new(reader.unwrap())]
        }
        Obstacle::Permits => {
            let permits = it.redlock.semaphore("event:rock", 2);
            let first = permits.acquire().await.unwrap();
            vec![Box::new(first), Box::new(permits.acquire().await.unwrap())]
        }
        Obstacle::Waiter => {
            let guard = it.redlock.lock("event:rock").await.unwrap();
            let app = app.clone();
            tokio::spawn(async move { post(&app, "/events/rock").await });
            while it.redlock.queue().waiting == 0 {
                tokio::task::yield_now().await;
            }
            vec![Box::new(guard)]
        }
        Obstacle::Outage => {
            it.nodes.go_down();
            Vec::new()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_status_and_words_and_says_when_to_retry() {
    use Obstacle::{None, Outage, Permits, Reader, Waiter, Writer};
    const POST: Method = Method::POST;
    const GET: Method = Method::GET;
    let plain = |it: Layer| it;
    let all_methods = |it: Layer| it.all_methods();
    let read_write = |it: Layer| it.read_write();
    let permits = |it: Layer| it.permits(2);
    let permits_too = |it: Layer| it.permits(2).read_write();
    let accepted = |it: Layer| it.contended_status(StatusCode::ACCEPTED);
    let conflict = |it: Layer| it.contended_status(StatusCode::CONFLICT);
    let of_readers = |it: Layer| conflict(it).read_write();
    let of_permits = |it: Layer| conflict(it).permits(2);
    let one_waits = |it: Layer| it.max_waiters_per_key(1).max_waiters_total(8);
    let one_in_all = |it: Layer| it.max_waiters_per_key(8).max_waiters_total(1);
    let no_keys = |it: Layer| it.max_keys(0);
    let working = "is working on";
    let no_permit = "As many requests as allowed";
    let this = "wait for this resource.";
    let others = "for this resource or for others.";
    let no_lock = "No lock is available";
    let too_many = "more than 0 resources";
    let wrong = "is misconfigured";
    let rows: [(_, &dyn Fn(Layer) -> Layer, _, _, _, _); 15] = [
        (Writer, &plain, POST, 423, "locked", working),
        (Reader, &all_methods, GET, 423, "locked", working),
        (Reader, &read_write, POST, 423, "locked", "are reading"),
        (Writer, &read_write, POST, 423, "locked", "are reading"),
        (Writer, &read_write, GET, 423, "locked", "is changing"),
        (Permits, &permits, POST, 429, "no-permit", no_permit),
        (Writer, &conflict, POST, 409, "locked", working),
        (Writer, &of_readers, GET, 409, "locked", "is changing"),
        (Permits, &of_permits, POST, 409, "no-permit", no_permit),
        (Writer, &accepted, POST, 202, "locked", working),
        (Waiter, &one_waits, POST, 429, "queue-full", this),
        (Waiter, &one_in_all, POST, 429, "queue-full", others),
        (Outage, &plain, POST, 503, "unavailable", no_lock),
        (None, &no_keys, POST, 400, "too-many-keys", too_many),
        (None, &permits_too, POST, 500, "misconfigured", wrong),
    ];
    for (obstacle, layer, method, status, kind, words) in rows {
        let it = Bed::new().await;
        let app = it.app(layer(it.layer().wait(MS(5000)).retry_after(MS(2500))));
        let waits = matches!(obstacle, Writer | Reader | Permits);
        let _kept = obstruct(&it, &app, obstacle).await;
        let asked = Instant::now();
        let body = problem(send(&app, rock(method)).await, status, kind).await;
        let waited = asked.elapsed();
        let in_time = if waits {
            MS(4800)..=MS(5000)
        } else {
            MS(0)..=MS(110)
        };
        assert!(in_time.contains(&waited), "{waited:?}: {body}");
        let (handler_ran, retry_after) = terms(&body);
        assert_eq!((handler_ran, it.ran()), (false, 0));
        let is_retryable = !matches!(status, 202 | 400 | 500);
        assert_eq!(retry_after.is_some(), is_retryable, "{body}");
        assert!(retry_after.is_none_or(|it| (2500..=5000).contains(&it)));
        assert_detail(&body, words);
        let shown = body.to_string();
        let tells = shown.contains("rock") || shown.contains("memory:");
        assert!(!tells, "neither the key nor the nodes: {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_without_a_body_and_the_longest_delay_are_possible() {
    let it = Bed::new().await;
    let _guard = it.nodes.contend("event:rock").await.unwrap();
    let layer = it.layer().wait(Duration::ZERO);
    let app = it.app(layer.clone().contended_status(StatusCode::NO_CONTENT));
    let nothing = post(&app, "/events/rock").await;
    assert_eq!(nothing.status(), 204);
    assert!(!nothing.headers().contains_key(header::CONTENT_TYPE));
    assert!(!nothing.headers().contains_key(header::RETRY_AFTER));
    let body = to_bytes(nothing.into_body(), 1000).await.unwrap();
    assert!(body.is_empty());
    let app = it.app(layer.retry_after(Duration::MAX));
    let body = problem(post(&app, "/events/rock").await, 423, "locked").await;
    assert_eq!(terms(&body).1, Some(u64::MAX));
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
async fn a_request_whose_lock_was_lost_may_be_a_500() {
    let it = Bed::new().await;
    let handler = async |locked: Locked| {
        locked.lost().await;
        sleep(MS(10)).await;
    };
    it.nodes.lose_next("event:rock");
    let app = event_route(handler, it.layer().on_lost(OnLost::Fail));
    let body = problem(post(&app, "/events/rock").await, 500, "lost").await;
    // No retry: the outcome is unknown.
    assert_eq!(terms(&body), (true, None));
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
    let mut request = rock(Method::POST);
    let headers = request.headers_mut();
    headers.insert("grpc-timeout", "700m".parse().unwrap());
    let asked = Instant::now();
    problem(send(&app, request).await, 423, "locked").await;
    let waited = asked.elapsed();
    assert!((MS(500)..=MS(701)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_500_names_no_types_and_the_log_names_the_fix() {
    let it = Bed::new().await;
    let without = Router::new().route("/events/{event}", routed_post(async |_: Locked| ()));
    let wrong = it.layer().ttl(Duration::ZERO).label("sales");
    assert!(wrong.check().is_err());
    for (app, fix, shown) in [
        (it.app(wrong), "ttl", "The lock layer `sales`"),
        (
            without,
            "add a redlock_axum::LockLayer",
            "log names the fix",
        ),
    ] {
        let body = misconfigured(&app, rock(Method::POST), fix).await;
        assert_detail(&body, shown);
        let detail = body["detail"].as_str().unwrap();
        for internal in ["::", "Locked", "Layer", "ttl", "redlock"] {
            assert!(!detail.contains(internal), "{internal} in {detail}");
        }
    }
    let optional = async |locked: Option<Locked>| format!("{}", locked.is_some());
    let without = Router::new().route("/", routed_post(optional));
    assert_eq!(text(post(&without, "/").await).await, "false");
}
