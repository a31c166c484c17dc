//! Where keys come from, and whose fault it is if there are none.

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Path, Query, Request},
    http::{Method, StatusCode, header as http_header, request},
    routing::any,
};
use futures::future::join_all;
use redlock_axum::{
    KeyRejection, LockLayer, LockRequest, Locked, Parts, RequestKey, extension, header,
    idempotency_key, json_field, matched_path, path, query, typed,
};
use redlock_tokio::{Redlock, test_util::TestNodes};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::support::{MS, problem, send, terms};

/// Use on a paused runtime.
async fn redlock() -> Redlock {
    TestNodes::new().connect().await.unwrap()
}

/// A route `/orders/{order}` whose handler says which keys it has.
async fn app<K: RequestKey>(key: K) -> Router {
    layered(LockLayer::new(redlock().await, key))
}

fn layered<K: RequestKey>(layer: LockLayer<K>) -> Router {
    let handler = async |locked: Option<Locked>| match locked {
        Some(locked) => {
            let keys = locked
                .keys()
                .map(|key| String::from_utf8_lossy(key.as_bytes()));
            keys.collect::<Vec<_>>().join(" and ")
        }
        None => "no lock".to_owned(),
    };
    Router::new()
        .route("/orders/{order}", any(handler))
        .layer(layer)
}

fn post(uri: &str) -> request::Builder {
    Request::post(uri)
}

fn empty(request: request::Builder) -> Request {
    request.body(Body::empty()).unwrap()
}

/// The body of a success.
async fn text(app: &Router, request: Request) -> String {
    support::text(send(app, request).await).await
}

/// Asserts that the handler does not run, and that the reason is told.
async fn refused(app: &Router, request: Request, status: u16, reason: &str) {
    let kind = match status {
        400 => "key",
        413 => "too-large",
        _ => "misconfigured",
    };
    let body = problem(send(app, request).await, status, kind).await;
    assert_eq!(terms(&body), (false, None));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains(reason), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn path_parameters() {
    let app = app(path("order")).await;
    assert_eq!(text(&app, empty(post("/orders/4%2F2"))).await, "order:4/2");
    refused(&app, empty(post("/orders/%ff")), 400, "UTF-8").await;
    let wrong = layered(LockLayer::new(redlock().await, path("ordre")));
    let reason = "the route `/orders/{order}` has no path parameter `ordre`";
    refused(&wrong, empty(post("/orders/42")), 500, reason).await;
    let nowhere = send(&app, empty(post("/nowhere"))).await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn headers() {
    let app = app(header("X-Tenant")).await;
    let request = || post("/orders/42");
    let given = empty(request().header("x-tenant", "acme"));
    assert_eq!(text(&app, given).await, "x-tenant:acme");
    refused(&app, empty(request()), 400, "`x-tenant` is missing").await;
    for unusable in [&b""[..], b"\xff"] {
        let request = empty(request().header("x-tenant", unusable));
        refused(&app, request, 400, "`x-tenant` is empty, or not").await;
    }
    let twice = request().header("x-tenant", "a").header("x-tenant", "b");
    refused(&app, empty(twice), 400, "more than once").await;
    let scoped = layered(LockLayer::new(
        redlock().await,
        header("x-tenant").scope("tenant"),
    ));
    let given = empty(request().header("x-tenant", "acme"));
    assert_eq!(text(&scoped, given).await, "tenant:acme");
}

#[test]
#[should_panic(expected = "`x tenant` is no header's name")]
fn a_name_that_no_header_can_have() {
    let _ = header("x tenant");
}

#[tokio::test(start_paused = true)]
async fn idempotency_keys() {
    let app = app(idempotency_key()).await;
    let request = |value: &str| empty(post("/orders/42").header("idempotency-key", value));
    for same in [r#""8e03978e""#, "8e03978e"] {
        assert_eq!(text(&app, request(same)).await, "idempotency-key:8e03978e");
    }
    let escaped = text(&app, request(r#""a\"b\\c""#)).await;
    assert_eq!(escaped, r#"idempotency-key:a"b\\c"#);
    for malformed in [r#"""#, r#""a"#, r#""a" b"#, r#""a\b""#, r#""""#] {
        refused(&app, request(malformed), 400, "no quoted string").await;
    }
    refused(&app, empty(post("/orders/42")), 400, "is missing").await;
}

#[tokio::test(start_paused = true)]
async fn parameters_of_the_query() {
    let app = app(query("account")).await;
    for (asked, key) in [
        ("account=7", "account:7"),
        ("x=1&account=a+b%26c", "account:a b&c"),
        ("acc%6Funt=7", "account:7"),
    ] {
        let request = empty(post(&format!("/orders/42?{asked}")));
        assert_eq!(text(&app, request).await, key);
    }
    for missing in ["/orders/42", "/orders/42?", "/orders/42?accounts=7"] {
        refused(
            &app,
            empty(post(missing)),
            400,
            "the query has no `account`",
        )
        .await;
    }
    let blank = empty(post("/orders/42?account="));
    refused(&app, blank, 400, "is empty").await;
    let twice = empty(post("/orders/42?account=7&account=8"));
    refused(&app, twice, 400, "more than one `account`").await;
}

#[derive(Clone)]
struct User {
    name: &'static str,
}

#[tokio::test(start_paused = true)]
async fn extensions() {
    let inner = app(extension("user", |user: &User| user.name)).await;
    let app = inner.clone().layer(Extension(User { name: "ada" }));
    assert_eq!(text(&app, empty(post("/orders/42"))).await, "user:ada");
    let reason = "put the layer that adds it outside of this one";
    refused(&inner, empty(post("/orders/42")), 500, reason).await;
}

#[tokio::test(start_paused = true)]
async fn the_route_itself() {
    let app = app(matched_path()).await;
    for uri in ["/orders/1", "/orders/2"] {
        assert_eq!(text(&app, empty(post(uri))).await, "route:/orders/{order}");
    }
    let nowhere = send(&app, empty(post("/nowhere"))).await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
}

#[derive(Deserialize)]
struct Seat {
    row: u8,
    seat: u8,
}

#[tokio::test(start_paused = true)]
async fn what_an_extractor_reads() {
    let key = typed("seat", |Query(Seat { row, seat })| format!("{row}/{seat}"));
    let by_seat = app(key).await;
    let request = empty(post("/orders/42?seat=7&row=03"));
    assert_eq!(text(&by_seat, request).await, "seat:3/7");
    refused(&by_seat, empty(post("/orders/42?row=3")), 400, "").await;

    let by_order = app(typed("order", |Path(order): Path<u32>| order)).await;
    for uri in ["/orders/42", "/orders/0042"] {
        assert_eq!(text(&by_order, empty(post(uri))).await, "order:42");
    }
    refused(&by_order, empty(post("/orders/latest")), 400, "").await;
}

#[tokio::test(start_paused = true)]
async fn several_parts_are_never_mixed_up() {
    let app = app(Parts::new("order", [header("x-tenant"), path("order")])).await;
    let request = |tenant: &str, order: &str| {
        let request = post(&format!("/orders/{order}"));
        empty(request.header("x-tenant", tenant))
    };
    assert_eq!(text(&app, request("a", "b")).await, "order:a:b");
    assert_eq!(text(&app, request("a:b", "c")).await, r"order:a\:b:c");
    assert_eq!(text(&app, request("a", "b:c")).await, r"order:a:b\:c");
    refused(
        &app,
        empty(post("/orders/42")),
        400,
        "`x-tenant` is missing",
    )
    .await;
    let of_nothing = layered(LockLayer::new(redlock().await, Parts::new("order", [])));
    refused(&of_nothing, request("a", "b"), 500, "no parts").await;
    let by_query = layered(LockLayer::new(
        redlock().await,
        Parts::new("order", [query("tenant"), path("order")]),
    ));
    refused(
        &by_query,
        empty(post("/orders/42?tenant=")),
        400,
        "is empty",
    )
    .await;
    let wrong = layered(LockLayer::new(
        redlock().await,
        Parts::new("order", [header("x-tenant"), path("ordre")]),
    ));
    refused(&wrong, request("a", "b"), 500, "no path parameter `ordre`").await;
}

#[tokio::test(start_paused = true)]
async fn a_tuple_locks_all_of_its_keys() {
    let account = |field: &str| json_field(field, 1024).scope("account");
    let nodes = TestNodes::new();
    let key = (account("from"), account("to"), path("order"));
    let layer = LockLayer::new(nodes.connect().await.unwrap(), key).wait(MS(50));
    let app = layered(layer);
    let transfer = |from: u32, to: u32| {
        let body = json!({ "from": from, "to": to }).to_string();
        post("/orders/1").body(Body::from(body)).unwrap()
    };
    assert_eq!(
        text(&app, transfer(7, 3)).await,
        "account:3 and account:7 and order:1"
    );
    assert_eq!(
        text(&app, transfer(7, 7)).await,
        "account:7 and order:1",
        "no key is locked twice"
    );
    let _other = nodes.contend("account:3").await.unwrap();
    for contended in [transfer(3, 5), transfer(5, 3)] {
        problem(send(&app, contended).await, 423, "locked").await;
    }
    assert_eq!(
        text(&app, transfer(5, 7)).await,
        "account:5 and account:7 and order:1"
    );
    let body = json!({ "from": 1 }).to_string();
    let request = post("/orders/1").body(Body::from(body)).unwrap();
    refused(&app, request, 400, "no field `to`").await;
}

/// The scope is what makes `from` and `to` the same kind of resource.
#[tokio::test(start_paused = true)]
async fn opposite_transfers_wait_for_each_other() {
    let redlock = redlock().await;
    for (key, expected) in [
        (
            (path("from").scope("account"), path("to").scope("account")),
            MS(40),
        ),
        ((path("from"), path("to")), MS(20)),
    ] {
        let transfer = async || tokio::time::sleep(MS(20)).await;
        let app = Router::new()
            .route("/{from}/{to}", any(transfer))
            .route_layer(LockLayer::new(redlock.clone(), key));
        let start = Instant::now();
        let requests = ["/7/3", "/3/7"].map(|uri| send(&app, empty(post(uri))));
        for response in join_all(requests).await {
            assert_eq!(response.status(), StatusCode::OK);
        }
        assert_eq!(start.elapsed(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn closures_choose_several_keys_one_or_none() {
    let key = |request: &Request| match request.uri().query() {
        None => Ok(None),
        Some("") => Err(KeyRejection::layer("by intent")),
        Some(keys) => Ok(Some(LockRequest::all(keys.split('&')))),
    };
    let redlock = redlock().await;
    let app = layered(
        LockLayer::new(redlock.clone(), key)
            .prefix("app/")
            .wait(MS(50)),
    );
    assert_eq!(text(&app, empty(post("/orders/42"))).await, "no lock");
    assert_eq!(text(&app, empty(post("/orders/42?b"))).await, "app/b");
    let both = text(&app, empty(post("/orders/42?b&a&b"))).await;
    assert_eq!(both, "app/a and app/b");
    refused(&app, empty(post("/orders/42?")), 500, "by intent").await;

    let _guard = redlock.lock("app/a").await.unwrap();
    let held = send(&app, empty(post("/orders/42?b&a"))).await;
    assert_eq!(held.status(), StatusCode::LOCKED);
    assert_eq!(text(&app, empty(post("/orders/42?b"))).await, "app/b");
}

/// A route whose handler gives its JSON back.
async fn echo(field: &str, limit: usize) -> (Router, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let handler = async move |locked: Locked, Json(body): Json<Value>| {
        count.fetch_add(1, SeqCst);
        let key = String::from_utf8_lossy(locked.key().as_bytes()).into_owned();
        Json(json!({ "key": key, "body": body }))
    };
    let layer = LockLayer::new(redlock().await, json_field(field, limit));
    let app = Router::new().route("/", any(handler)).route_layer(layer);
    (app, ran)
}

fn posted(body: impl Into<Body>) -> Request {
    let request = post("/").header(http_header::CONTENT_TYPE, "application/json");
    request.body(body.into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_body_which_the_handler_still_reads() {
    let (app, ran) = echo("order.id", 100).await;
    for (id, key) in [
        (json!("a:b"), r"order.id:a\:b"),
        (json!(42), "order.id:42"),
        (json!(-1), "order.id:-1"),
    ] {
        let body = json!({ "order": { "id": id, "of": [1, 2] }, "note": "ü" });
        let response = text(&app, posted(body.to_string())).await;
        let response: Value = serde_json::from_str(&response).unwrap();
        assert_eq!(response, json!({ "key": key, "body": body }));
    }
    assert_eq!(ran.swap(0, SeqCst), 3);
    for (body, reason) in [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{}", "no field `order.id`"),
        (r#"{"order": 1}"#, "no field `order.id`"),
        (r#"{"order.id": 1}"#, "no field `order.id`"),
        (r#"[{"order": {"id": 1}}]"#, "no field `order.id`"),
        (
            r#"{"order": {"id": null}}"#,
            "neither a string nor a number",
        ),
        (r#"{"order": {"id": {}}}"#, "neither a string nor a number"),
    ] {
        refused(&app, posted(body), 400, reason).await;
    }
    assert_eq!(ran.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_or_breaks_off() {
    let body = r#"{"id":"a"}"#;
    let (app, _) = echo("id", body.len()).await;
    assert_eq!(send(&app, posted(body)).await.status(), StatusCode::OK);
    let (app, ran) = echo("id", body.len() - 1).await;
    refused(&app, posted(body), 413, "over 9 bytes").await;
    let broken = futures::stream::iter([Ok("{"), Err("hung up")]);
    let broken = posted(Body::from_stream(broken));
    refused(&app, broken, 400, "cannot be read").await;
    assert_eq!(ran.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn which_methods_need_a_lock() {
    let layer = LockLayer::new(redlock().await, path("order"));
    let by_default = layered(layer.clone());
    let all = layered(layer.clone().all_methods());
    let these = layered(layer.methods([Method::GET, Method::DELETE]));
    let custom = Method::from_bytes(b"SETTLE").unwrap();
    for (method, needs, is_of_these) in [
        (Method::GET, false, true),
        (Method::OPTIONS, false, false),
        (Method::TRACE, false, false),
        (Method::POST, true, false),
        (Method::PUT, true, false),
        (Method::PATCH, true, false),
        (Method::DELETE, true, true),
        (custom, true, false),
    ] {
        for (app, needs) in [(&by_default, needs), (&all, true), (&these, is_of_these)] {
            let request = Request::builder().method(&method).uri("/orders/42");
            let said = text(app, empty(request)).await;
            assert_eq!(said == "order:42", needs, "{method}: {said}");
            assert_eq!(said == "no lock", !needs, "{method}: {said}");
        }
    }
    // No body says whether it ran under a lock.
    let wrong = LockLayer::new(redlock().await, path("ordre"));
    let head = || empty(Request::head("/orders/42"));
    let passes = send(&layered(wrong.clone()), head()).await;
    assert_eq!(passes.status(), StatusCode::OK);
    let locks = send(&layered(wrong.all_methods()), head()).await;
    assert_eq!(locks.status(), StatusCode::INTERNAL_SERVER_ERROR);
}
