//! Sources of keys, and who is at fault if a request has none.

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, Query, Request},
    http::{Method, StatusCode, request},
    routing::any,
};
use redlock_axum::{
    KeyRejection, LockLayer, LockRequest, Locked, RequestKey, header, json_field, key,
    matched_path, path, query, typed,
};
use redlock_tokio::{Key, Redlock, test_util::TestNodes};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{self, MS, keys_of, misconfigured, problem, refused, say_key, send};

/// Use on a paused runtime.
async fn redlock() -> Redlock {
    TestNodes::new().connect().await.unwrap()
}

/// A route `/orders/{order}` whose handler responds with its keys.
async fn app<K: RequestKey>(key: K) -> Router {
    layered(LockLayer::new(redlock().await, key))
}

fn layered<K: RequestKey>(layer: LockLayer<K>) -> Router {
    let handler = async |locked: Option<Locked>| match locked {
        Some(locked) => keys_of(&locked),
        None => "no lock".to_owned(),
    };
    let route = Router::new().route("/orders/{order}", any(handler));
    route.layer(layer)
}

fn post(uri: &str) -> request::Builder {
    Request::post(uri)
}

fn empty(request: request::Builder) -> Request {
    request.body(Body::empty()).unwrap()
}

/// Returns the body of a successful response.
async fn text(app: &Router, request: Request) -> String {
    support::text(send(app, request).await).await
}

#[tokio::test(start_paused = true)]
async fn a_path_parameter_is_a_key() {
    let app = app(key("order", path("order"))).await;
    assert_eq!(text(&app, empty(post("/orders/4%2F2"))).await, "order:4/2");
    refused(&app, empty(post("/orders/%ff")), 400, "UTF-8").await;
    let wrong = self::app(key("order", path("ordre"))).await;
    let reason = "the route `/orders/{order}` has no path parameter `ordre`";
    misconfigured(&wrong, empty(post("/orders/42")), reason).await;
    let nowhere = send(&app, empty(post("/nowhere"))).await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_header_is_a_key() {
    let app = app(key("tenant", header("X-Tenant"))).await;
    let request = || post("/orders/42");
    let given = empty(request().header("x-tenant", "acme"));
    assert_eq!(text(&app, given).await, "tenant:acme");
    refused(&app, empty(request()), 400, "`x-tenant` is missing").await;
    for unusable in [&b""[..], b"\xff"] {
        let request = empty(request().header("x-tenant", unusable));
        refused(&app, request, 400, "`x-tenant` is empty, or not").await;
    }
    let twice = request().header("x-tenant", "a").header("x-tenant", "b");
    refused(&app, empty(twice), 400, "more than once").await;
}

#[test]
#[should_panic(expected = "`x tenant` is not a valid header name")]
fn an_invalid_header_name_panics() {
    let _ = header("x tenant");
}

#[tokio::test(start_paused = true)]
async fn a_parameter_of_the_query_is_a_key() {
    let app = app(key("account", query("account"))).await;
    for (asked, key) in [
        ("account=7", "account:7"),
        ("x=1&account=a+b%26c", "account:a b&c"),
        ("acc%6Funt=7", "account:7"),
    ] {
        let request = empty(post(&format!("/orders/42?{asked}")));
        assert_eq!(text(&app, request).await, key);
    }
    for missing in ["/orders/42", "/orders/42?", "/orders/42?accounts=7"] {
        let missing = empty(post(missing));
        refused(&app, missing, 400, "the query has no `account`").await;
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
async fn an_extension_is_a_key() {
    let inner = app(key(
        "user",
        typed(|Extension(user): Extension<User>| user.name),
    ))
    .await;
    let app = inner.clone().layer(Extension(User { name: "ada" }));
    assert_eq!(text(&app, empty(post("/orders/42"))).await, "user:ada");
    let reason = "Missing request extension";
    misconfigured(&inner, empty(post("/orders/42")), reason).await;
}

#[tokio::test(start_paused = true)]
async fn the_route_itself() {
    let app = app(key("route", matched_path())).await;
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
async fn a_value_of_an_extractor_is_a_key() {
    let seat = typed(|Query(Seat { row, seat })| format!("{row}/{seat}"));
    let by_seat = app(key("seat", seat)).await;
    let request = empty(post("/orders/42?seat=7&row=03"));
    assert_eq!(text(&by_seat, request).await, "seat:3/7");
    refused(&by_seat, empty(post("/orders/42?row=3")), 400, "").await;

    let by_order = app(key("order", typed(|Path(order): Path<u32>| order))).await;
    for uri in ["/orders/42", "/orders/0042"] {
        assert_eq!(text(&by_order, empty(post(uri))).await, "order:42");
    }
    refused(&by_order, empty(post("/orders/latest")), 400, "").await;
}

#[tokio::test(start_paused = true)]
async fn different_parts_never_make_the_same_key() {
    let app = app(key("order", [header("x-tenant"), path("order")])).await;
    let request = |tenant: &str, order: &str| {
        let request = post(&format!("/orders/{order}"));
        empty(request.header("x-tenant", tenant))
    };
    assert_eq!(text(&app, request("a", "b")).await, "order:a:b");
    assert_eq!(text(&app, request("a:b", "c")).await, r"order:a\:b:c");
    assert_eq!(text(&app, request("a", "b:c")).await, r"order:a:b\:c");
    let none = empty(post("/orders/42"));
    refused(&app, none, 400, "`x-tenant` is missing").await;
    let of_nothing = self::app(key("order", [])).await;
    misconfigured(&of_nothing, request("a", "b"), "no parts").await;
    let unscoped = self::app(key("", path("order"))).await;
    misconfigured(&unscoped, request("a", "b"), "empty scope").await;
    let by_query = self::app(key("order", [query("tenant"), path("order")])).await;
    let blank = empty(post("/orders/42?tenant="));
    refused(&by_query, blank, 400, "`tenant` of the query is empty").await;
    let wrong = self::app(key("order", [header("x-tenant"), path("ordre")])).await;
    misconfigured(&wrong, request("a", "b"), "no path parameter `ordre`").await;
}

#[tokio::test(start_paused = true)]
async fn a_tuple_locks_all_of_its_keys() {
    let account = |field: &str| key("account", json_field(field, 1024));
    let nodes = TestNodes::new();
    let keys = (account("from"), account("to"), key("order", path("order")));
    let layer = LockLayer::new(nodes.connect().await.unwrap(), keys).wait(MS(50));
    let app = layered(layer);
    let with = |body: Value| {
        let body = Body::from(body.to_string());
        post("/orders/1").body(body).unwrap()
    };
    let transfer = |from: u32, to: u32| with(json!({ "from": from, "to": to }));
    let several = text(&app, transfer(7, 3)).await;
    assert_eq!(several, "account:3 and account:7 and order:1");
    let fewer = text(&app, transfer(7, 7)).await;
    assert_eq!(fewer, "account:7 and order:1", "no key is locked twice");
    let _other = nodes.contend("account:3").await.unwrap();
    for contended in [transfer(3, 5), transfer(5, 3)] {
        problem(send(&app, contended).await, 423, "locked").await;
    }
    let several = text(&app, transfer(5, 7)).await;
    assert_eq!(several, "account:5 and account:7 and order:1");
    let incomplete = with(json!({ "from": 1 }));
    refused(&app, incomplete, 400, "no field `to`").await;
}

#[tokio::test(start_paused = true)]
async fn closures_choose_several_keys_one_or_none() {
    let key = |request: &Request| match request.uri().query() {
        None => Ok(None),
        Some("") => Err(KeyRejection::layer("by intent")),
        Some(keys) => Ok(Some(LockRequest::all(keys.split('&')))),
    };
    let app = layered(LockLayer::new(redlock().await, key).prefix("app/"));
    assert_eq!(text(&app, empty(post("/orders/42"))).await, "no lock");
    assert_eq!(text(&app, empty(post("/orders/42?b"))).await, "app/b");
    let both = text(&app, empty(post("/orders/42?b&a&b"))).await;
    assert_eq!(both, "app/a and app/b");
    misconfigured(&app, empty(post("/orders/42?")), "by intent").await;
}

fn order(tenant: &str, order: u32) -> Request {
    let request = post("/orders").header("x-tenant", tenant);
    let body = json!({ "order": order }).to_string();
    request.body(Body::from(body)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_key_of_a_header_and_a_json_field_locks_one_order_and_not_the_tenant() {
    let redlock = redlock().await;
    let parts = [header("x-tenant"), json_field("order", 1024)];
    let layer = LockLayer::new(redlock.clone(), key("order", parts)).wait(MS(50));
    let route = Router::new().route("/orders", any(say_key));
    let app = route.route_layer(layer);
    let by_hand = Key::parts(["order", "acme", "7"]).unwrap();
    let guard = redlock.lock(&by_hand).await.unwrap();
    problem(send(&app, order("acme", 7)).await, 423, "locked").await;
    assert_eq!(text(&app, order("acme", 8)).await, "order:acme:8");
    assert_eq!(text(&app, order("apex", 7)).await, "order:apex:7");
    guard.release().await;
    let said = text(&app, order("acme", 7)).await;
    assert_eq!(said.as_bytes(), by_hand.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn parts_of_all_sources_make_one_key() {
    let parts = vec![
        json_field("order.id", 1024),
        typed(|Extension(user): Extension<User>| user.name),
        path("order"),
        query("shop"),
        matched_path(),
        header("x-tenant"),
        typed(|method: Method| method),
        json_field("note", 1024),
    ];
    let app = app(key("all", parts)).await;
    let app = app.layer(Extension(User { name: "ada" }));
    let request = post("/orders/42?shop=a:b")
        .header("x-tenant", "acme")
        .body(Body::from(r#"{"order": {"id": -7}, "note": "n"}"#));
    let said = text(&app, request.unwrap()).await;
    assert_eq!(said, r"all:-7:ada:42:a\:b:/orders/{order}:acme:POST:n");
}
