//! A route over nodes in memory, requests to it, checks of its problems, and a [server].

#[path = "../../../redlock-tokio/tests/support/log.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub(crate) mod log;
pub(crate) mod server;

use std::{
    io,
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
    handler::Handler,
    http::{Method, StatusCode, header},
    response::Response,
    routing::{any, get},
};
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use redlock_axum::{CompositeKey, LockLayer, Locked, RequestKey, key, path};
use redlock_tokio::{Redlock, test_util::TestNodes};
use serde_json::Value;
use tower::ServiceExt;
use tracing::Level;

use self::log::Log;

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// Use on a paused runtime.
pub(crate) struct Bed {
    pub(crate) nodes: TestNodes,
    pub(crate) redlock: Redlock,
    /// How many handlers ran.
    ran: Arc<AtomicUsize>,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let nodes = TestNodes::new();
        Self {
            redlock: nodes.connect().await.unwrap(),
            nodes,
            ran: Arc::default(),
        }
    }

    /// Returns a layer that locks by event.
    pub(crate) fn layer(&self) -> LockLayer<CompositeKey> {
        LockLayer::new(self.redlock.clone(), key("event", path("event")))
    }

    /// Returns the route `/events/{event}`, whose handler responds with its event and its key.
    pub(crate) fn router(&self) -> Router {
        let ran = Arc::clone(&self.ran);
        let handler = move |Path(event): Path<String>, locked: Option<Locked>| async move {
            ran.fetch_add(1, SeqCst);
            let key = locked.as_ref().map(keys_of);
            format!("{event} under {key:?}")
        };
        Router::new().route("/events/{event}", get(handler.clone()).post(handler))
    }

    /// Returns this route behind a layer.
    pub(crate) fn app<K: RequestKey>(&self, layer: LockLayer<K>) -> Router {
        self.router().route_layer(layer)
    }

    pub(crate) fn ran(&self) -> usize {
        self.ran.load(SeqCst)
    }
}

/// Returns the route `/events/{event}` with a handler for all methods, behind a layer.
pub(crate) fn event_route<H, T, K>(handler: H, layer: LockLayer<K>) -> Router
where
    H: Handler<T, ()>,
    T: 'static,
    K: RequestKey,
{
    let route = Router::new().route("/events/{event}", any(handler));
    route.route_layer(layer)
}

/// Returns all keys of a lock.
pub(crate) fn keys_of(locked: &Locked) -> String {
    let keys = locked.keys().map(|key| key.as_bytes().to_vec());
    String::from_utf8(keys.collect::<Vec<_>>().join(&b" and "[..])).unwrap()
}

pub(crate) fn request(method: Method, uri: &str) -> Request {
    let request = Request::builder().method(method).uri(uri);
    request.body(Body::empty()).unwrap()
}

/// Returns a request to `/events/rock`.
pub(crate) fn rock(method: Method) -> Request {
    request(method, "/events/rock")
}

/// Returns a body that stops after its first byte.
pub(crate) fn that_stops() -> Body {
    let first = stream::iter([Ok::<_, io::Error>("{")]);
    Body::from_stream(first.chain(stream::pending()))
}

pub(crate) async fn send(app: &Router, request: Request) -> Response {
    app.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn post(app: &Router, uri: &str) -> Response {
    send(app, request(Method::POST, uri)).await
}

/// Returns the body of a successful response.
pub(crate) async fn text(response: Response) -> String {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

/// Checks what all problems have in common, and returns the body.
pub(crate) async fn problem(response: Response, status: u16, kind: &str) -> Value {
    let headers = response.headers().clone();
    assert_eq!(response.status(), status);
    assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["status"], status);
    assert_eq!(body["type"], format!("urn:redlock:problem:{kind}"));
    assert!(body["title"].is_string() && body["detail"].is_string());
    match headers.get(header::RETRY_AFTER) {
        Some(seconds) => {
            let millis = body["retry_after_ms"].as_u64().unwrap();
            assert_eq!(seconds.to_str().unwrap(), millis.div_ceil(1000).to_string());
            assert_eq!(body["retryable"], true);
        }
        None => assert!(body.get("retry_after_ms").is_none() && body["retryable"] == false),
    }
    body
}

/// Returns whether the handler ran, and when to retry in milliseconds, both according to a problem.
pub(crate) fn terms(body: &Value) -> (bool, Option<u64>) {
    let handler_ran = body["handler_ran"].as_bool().unwrap();
    (handler_ran, body["retry_after_ms"].as_u64())
}

/// Returns whether the handler did not run and the client is told when to retry, both according to a problem.
pub(crate) fn may_retry(body: &Value) -> bool {
    matches!(terms(body), (false, Some(_)))
}

/// Asserts that the detail of a problem contains this text.
pub(crate) fn assert_detail(body: &Value, text: &str) {
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains(text), "{detail}");
}

/// Asserts that a request has no key, that its handler does not run, and that the problem contains the reason.
pub(crate) async fn refused(app: &Router, request: Request, status: u16, reason: &str) {
    let kind = if status == 413 { "too-large" } else { "key" };
    let body = problem(send(app, request).await, status, kind).await;
    assert_eq!(terms(&body), (false, None));
    assert_detail(&body, reason);
}

/// Asserts that a request gets a 500 because of its layer, and that the log has the reason, but not the response.
/// Returns the body of the response.
pub(crate) async fn misconfigured(app: &Router, request: Request, reason: &str) -> Value {
    let (log, _listening) = Log::with_spans();
    let body = problem(send(app, request).await, 500, "misconfigured").await;
    assert_eq!(terms(&body), (false, None));
    assert!(!body.to_string().contains(reason), "{body}");
    let errors = log.louder_than(Level::WARN);
    assert!(errors.iter().any(|it| it.contains(reason)), "{errors:#?}");
    body
}
