//! What clients see, asserted on the responses of real routers over nodes in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request},
    http::{Method, StatusCode, header},
    response::Response,
    routing::{get, post},
};
use http_body_util::BodyExt;
use redlock_axum::{KeyRejection, LockLayer, LockLost, Locked, path};
use redlock_tokio::{Clock, MemoryNode, Redlock};
use serde_json::Value;
use tower::ServiceExt;

const MS: fn(u64) -> Duration = Duration::from_millis;

struct Fixture {
    nodes: Vec<MemoryNode>,
    redlock: Redlock,
    /// How often a handler ran.
    ran: Arc<AtomicUsize>,
}

impl Fixture {
    /// Use on a paused runtime.
    async fn new() -> Self {
        let clock = Clock::tokio();
        let nodes: Vec<_> = (0..3)
            .map(|_| MemoryNode::with_clock(clock.clone()))
            .collect();
        let builder = Redlock::builder().custom_nodes(nodes.clone()).clock(clock);
        Self {
            nodes,
            redlock: builder.build().await.unwrap(),
            ran: Arc::default(),
        }
    }

    /// A handler that says which event it was called for, and that it ran.
    fn router(&self) -> Router {
        let ran = Arc::clone(&self.ran);
        let handler = move |Path(event): Path<String>, locked: Option<Locked>| async move {
            ran.fetch_add(1, SeqCst);
            let key = locked.map(|it| String::from_utf8(it.key().as_bytes().to_vec()).unwrap());
            format!("{event} under {key:?}")
        };
        Router::new().route("/events/{event}", get(handler.clone()).post(handler))
    }

    fn ran(&self) -> usize {
        self.ran.load(SeqCst)
    }
}

async fn send(app: &Router, method: Method, uri: &str) -> Response {
    let request = Request::builder().method(method).uri(uri);
    let request = request.body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Checks what all problems have in common, and returns the body.
async fn problem(response: Response, status: u16, kind: &str) -> Value {
    assert_eq!(response.status(), status);
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "application/problem+json"
    );
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["status"], status);
    assert_eq!(body["type"], format!("urn:redlock:problem:{kind}"));
    assert!(body["title"].is_string() && body["detail"].is_string());
    match retry_after {
        Some(seconds) => {
            let millis = body["retry_after_ms"].as_u64().unwrap();
            assert_eq!(seconds.to_str().unwrap(), millis.div_ceil(1000).to_string());
            assert_eq!(body["retryable"], true);
        }
        None => assert!(body.get("retry_after_ms").is_none() && body["retryable"] == false),
    }
    body
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_held_for_the_handler_and_released_after_it() {
    let it = Fixture::new().await;
    let app = it
        .router()
        .route_layer(LockLayer::new(it.redlock.clone(), path("event")));
    let response = send(&app, Method::POST, "/events/rock").await;
    assert_eq!(text(response).await, r#"rock under Some("event:rock")"#);
    assert!(it.redlock.try_lock("event:rock").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_423_after_the_wait() {
    let it = Fixture::new().await;
    let layer = LockLayer::new(it.redlock.clone(), path("event")).wait(MS(300));
    let app = it.router().route_layer(layer);
    let guard = it.redlock.lock("event:secret-name").await.unwrap();
    let before = tokio::time::Instant::now();
    let response = send(&app, Method::POST, "/events/secret-name").await;
    assert!((MS(200)..=MS(300)).contains(&before.elapsed()));
    let body = problem(response, 423, "locked").await;
    assert!(
        body["retry_after_ms"]
            .as_u64()
            .is_some_and(|ms| (1000..=2000).contains(&ms))
    );
    assert_eq!(body["handler_ran"], false);
    let shown = body.to_string();
    assert!(
        !shown.contains("secret") && !shown.contains("memory:"),
        "{shown}"
    );
    assert_eq!(it.ran(), 0);

    let other = send(&app, Method::POST, "/events/other").await;
    assert_eq!(other.status(), 200, "another resource is not held up");
    drop(guard);
    let freed = send(&app, Method::POST, "/events/secret-name").await;
    assert_eq!(freed.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn no_quorum_is_503() {
    let it = Fixture::new().await;
    let layer = LockLayer::new(it.redlock.clone(), path("event"))
        .wait(MS(100))
        .retry_after(MS(3500));
    let app = it.router().route_layer(layer);
    it.nodes[..2].iter().for_each(|node| node.set_down(true));
    let response = send(&app, Method::POST, "/events/rock").await;
    let body = problem(response, 503, "unavailable").await;
    assert!(
        body["retry_after_ms"]
            .as_u64()
            .is_some_and(|ms| (3500..=7000).contains(&ms))
    );
    assert_eq!((&body["handler_ran"], it.ran()), (&Value::Bool(false), 0));
    let layer = LockLayer::new(it.redlock.clone(), path("event")).wait(Duration::ZERO);
    let app = it.router().route_layer(layer.retry_after(Duration::MAX));
    let body = problem(
        send(&app, Method::POST, "/events/rock").await,
        503,
        "unavailable",
    )
    .await;
    assert_eq!(body["retry_after_ms"], u64::MAX);
}

#[tokio::test(start_paused = true)]
async fn safe_methods_pass_without_a_lock_unless_told_otherwise() {
    let it = Fixture::new().await;
    let layer = LockLayer::new(it.redlock.clone(), path("event")).wait(MS(50));
    let _guard = it.redlock.lock("event:rock").await.unwrap();
    let app = it.router().route_layer(layer.clone());
    let response = send(&app, Method::GET, "/events/rock").await;
    assert_eq!(text(response).await, "rock under None");
    let app = it.router().route_layer(layer.all_methods());
    let response = send(&app, Method::GET, "/events/rock").await;
    problem(response, 423, "locked").await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_client_should_have_given_is_400() {
    let it = Fixture::new().await;
    let key = |request: &Request| {
        let account = request.headers().get("account");
        let account = account.ok_or("no `account` header")?;
        Ok::<_, KeyRejection>(account.as_bytes().to_vec())
    };
    let app = it
        .router()
        .route_layer(LockLayer::new(it.redlock.clone(), key));
    let body = problem(send(&app, Method::POST, "/events/rock").await, 400, "key").await;
    assert!(
        body["detail"]
            .as_str()
            .unwrap()
            .contains("no `account` header")
    );
    let empty = Request::post("/events/rock").header("account", "");
    let empty = empty.body(Body::empty()).unwrap();
    problem(app.clone().oneshot(empty).await.unwrap(), 400, "key").await;
    assert_eq!(it.ran(), 0);
    let given = Request::post("/events/rock").header("account", "7");
    let given = given.body(Body::empty()).unwrap();
    assert_eq!(app.clone().oneshot(given).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_route_cannot_have_is_500_and_names_the_layer() {
    let it = Fixture::new().await;
    let layer = LockLayer::new(it.redlock.clone(), path("evnet"));
    let app = it.router().route_layer(layer.clone());
    let body = problem(
        send(&app, Method::POST, "/events/rock").await,
        500,
        "misconfigured",
    )
    .await;
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("redlock_axum::LockLayer"), "{detail}");
    assert!(
        detail.contains("`/events/{event}` has no path parameter `evnet`"),
        "{detail}"
    );
    let options = LockLayer::new(it.redlock.clone(), path("event")).ttl(Duration::ZERO);
    let app = it.router().route_layer(options);
    problem(
        send(&app, Method::POST, "/events/rock").await,
        500,
        "misconfigured",
    )
    .await;
    assert_eq!(it.ran(), 0);
}

#[tokio::test(start_paused = true)]
async fn path_values_are_decoded_once_and_scoped() {
    let it = Fixture::new().await;
    let app = it
        .router()
        .route_layer(LockLayer::new(it.redlock.clone(), path("event")));
    for (uri, key) in [
        ("/events/rock%20am%20see", "event:rock am see"),
        ("/events/a%2Fb", "event:a/b"),
        ("/events/a%2fb", "event:a/b"),
        ("/events/100%2525", "event:100%25"),
        ("/events/%C3%BC", "event:ü"),
    ] {
        let shown = text(send(&app, Method::POST, uri).await).await;
        assert!(
            shown.ends_with(&format!("under Some({key:?})")),
            "{uri}: {shown}"
        );
    }
    let not_text = send(&app, Method::POST, "/events/%ff").await;
    problem(not_text, 400, "key").await;

    let scoped = path("event").scope("concert");
    let app = it
        .router()
        .route_layer(LockLayer::new(it.redlock.clone(), scoped));
    let shown = text(send(&app, Method::POST, "/events/rock").await).await;
    assert!(shown.contains("concert:rock"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn works_on_routers_nested_routers_and_method_routers() {
    let it = Fixture::new().await;
    let layer = LockLayer::new(it.redlock.clone(), path("event")).wait(MS(50));
    let _guard = it.redlock.lock("event:rock").await.unwrap();

    let handler = async |Path(_): Path<String>| "ran";
    let on_router = it.router().layer(layer.clone());
    let nested = Router::new().nest("/v1", it.router().route_layer(layer.clone()));
    let on_outer = Router::new().nest("/{tenant}", Router::new().route("/x", post(async || "ran")));
    let on_outer = on_outer.layer(LockLayer::new(it.redlock.clone(), path("tenant")));
    let on_method = Router::new().route("/events/{event}", post(handler).layer(layer));
    for (app, prefix) in [(&on_router, ""), (&nested, "/v1"), (&on_method, "")] {
        let held = send(app, Method::POST, &format!("{prefix}/events/rock")).await;
        problem(held, 423, "locked").await;
        let free = send(app, Method::POST, &format!("{prefix}/events/jazz")).await;
        assert_eq!(free.status(), 200);
        let nowhere = send(app, Method::POST, "/nowhere").await;
        assert_eq!(
            nowhere.status(),
            404,
            "and no complaint about a missing parameter"
        );
    }
    assert_eq!(send(&on_outer, Method::POST, "/acme/x").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn locked_without_the_layer_is_500_that_names_the_fix() {
    let app = Router::new().route("/", post(async |_: Locked| "ran"));
    let body = problem(send(&app, Method::POST, "/").await, 500, "misconfigured").await;
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("add a redlock_axum::LockLayer"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_tell_that_its_lock_is_lost() {
    let it = Fixture::new().await;
    let nodes = it.nodes.clone();
    let handler = async move |locked: Locked| {
        locked.ensure()?;
        nodes.iter().for_each(MemoryNode::clear);
        locked.lost().await;
        locked.ensure()?;
        Ok::<_, LockLost>("committed")
    };
    let layer = LockLayer::new(it.redlock.clone(), |_: &Request| "k");
    let app = Router::new().route("/", post(handler)).route_layer(layer);
    let body = problem(send(&app, Method::POST, "/").await, 500, "lost").await;
    assert_eq!(body["handler_ran"], true);
}

#[tokio::test(start_paused = true)]
async fn a_response_is_not_touched_when_the_lock_was_lost() {
    let it = Fixture::new().await;
    let nodes = it.nodes.clone();
    let handler = async move |locked: Locked| {
        nodes.iter().for_each(MemoryNode::clear);
        locked.lost().await;
        "committed"
    };
    let layer = LockLayer::new(it.redlock.clone(), |_: &Request| "k");
    let app = Router::new().route("/", post(handler)).route_layer(layer);
    assert_eq!(text(send(&app, Method::POST, "/").await).await, "committed");
}
