//! Keys: what each part of a request makes of it, and who is at fault if a request has none.

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, Query, Request},
    http::{Method, StatusCode, request},
    routing::any,
};
use redlock_axum::{
    KeyRejection, LockLayer, Locked, RequestKey, header, json_field, key, matched_path, path,
    query, typed,
};
use redlock_tokio::{Key, test_util::TestNodes};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{self, MS, keys_of, misconfigured, problem, refused, send};

const NEITHER: &str = "neither a string nor a number";
const AS_A_STRING: &str = "send it as a string";
const NOT_VALID: &str = "is not valid: invalid digit";
const NO_FIELD: &str = "no field `order.id`";
const TWICE: &str = "more than one field `order.id`";

/// The client chooses the spelling. Where the part parses or folds the value, it cannot choose between locks.
#[tokio::test(start_paused = true)]
async fn each_source_makes_a_key_of_its_value_or_says_what_is_wrong() {
    let in_path = |text: &str| empty(post(&format!("/orders/{text}")));
    let in_query = |text: &str| empty(post(&format!("/orders/42?{text}")));
    let in_header = |text: &str| empty(post("/orders/42").header("x-tenant", text.as_bytes()));
    let in_body = |text: &str| {
        post("/orders/42")
            .body(Body::from(text.to_owned()))
            .unwrap()
    };
    let id_is = |text: &str| {
        let body = format!(r#"{{"order": {{"id": {text} }}}}"#);
        post("/orders/42").body(Body::from(body)).unwrap()
    };
    let seat = typed(|Query(Seat { row, seat })| format!("{row}/{seat}"));
    let order = typed(|Path(order): Path<u32>| order);
    let lower = |text: &str| text.trim_matches('-').to_lowercase();
    let id = json_field("order.id", 1000);
    let long = r#""123456789012345678901234567890""#;
    for (part, request, cases) in [
        (
            path("order"),
            &in_path as &dyn Fn(&str) -> Request,
            &[
                ("rock%20am%20see", Ok("rock am see")),
                ("4%2F2", Ok("4/2")),
                ("4%2f2", Ok("4/2")),
                ("100%2525", Ok("100%25")),
                ("%C3%BC", Ok("ü")),
                // The table in `MIGRATING.md` of `redlock-tokio` has this one.
                ("a%3Ab%5Cc", Ok(r"a\:b\\c")),
                ("%ff", Err("UTF-8")),
            ][..],
        ),
        (
            path("order").parse::<u64>(),
            &in_path,
            &[
                ("7", Ok("7")),
                ("07", Ok("7")),
                ("+7", Ok("7")),
                ("%2B007", Ok("7")),
                ("%37", Ok("7")),
                ("-7", Err("the path parameter `order` is not valid")),
                ("7.0", Err(NOT_VALID)),
                ("0x7", Err(NOT_VALID)),
                ("%207", Err(NOT_VALID)),
            ],
        ),
        (order, &in_path, &[("0042", Ok("42")), ("latest", Err(""))]),
        (matched_path(), &in_path, &[("1", Ok("/orders/{order}"))]),
        (
            header("X-Tenant"),
            &in_header,
            &[
                ("acme", Ok("acme")),
                ("", Err("`x-tenant` is empty, or not")),
                ("ü", Err("`x-tenant` is empty, or not")),
            ],
        ),
        (
            header("x-tenant").map(lower),
            &in_header,
            &[
                ("Ada", Ok("ada")),
                ("aDA--", Ok("ada")),
                ("--", Err("is empty")),
            ],
        ),
        (
            query("account"),
            &in_query,
            &[
                ("account=7", Ok("7")),
                ("x=1&account=a+b%26c", Ok("a b&c")),
                ("acc%6Funt=7", Ok("7")),
                ("", Err("the query has no `account`")),
                ("accounts=7", Err("the query has no `account`")),
                ("account=", Err("is empty")),
                ("account=7&account=8", Err("more than one `account`")),
            ],
        ),
        (
            seat,
            &in_query,
            &[("seat=7&row=03", Ok("3/7")), ("row=3", Err(""))],
        ),
        (
            id.clone(),
            &in_body,
            &[
                ("", Err("not JSON")),
                ("{", Err("not JSON")),
                ("{}", Err(NO_FIELD)),
                (r#"{"order": 1}"#, Err(NO_FIELD)),
                (r#"{"order.id": 1}"#, Err(NO_FIELD)),
                (r#"[{"order": {"id": 1}}]"#, Err(NO_FIELD)),
                (r#"{"order": {"id": 1, "id": 1}}"#, Err(TWICE)),
                (r#"{"order": {"id": 1, "\u0069d": 2}}"#, Err(TWICE)),
                (r#"{"order": {"id": 1}, "order": null}"#, Err(TWICE)),
                (
                    r#"{"id": 1, "id": 2, "order": {"id": 3, "of": {"id": 4}}}"#,
                    Ok("3"),
                ),
            ],
        ),
        (
            id.clone(),
            &id_is,
            &[
                ("42", Ok("42")),
                (r#""42""#, Ok("42")),
                ("18446744073709551615", Ok("18446744073709551615")),
                ("-9223372036854775808", Ok("-9223372036854775808")),
                (r#""42.10""#, Ok("42.10")),
                (r#""-0""#, Ok("-0")),
                (long, Ok(long.trim_matches('"'))),
                (r#""\u0061\u00fc""#, Ok("aü")),
                // Numbers that can be written in several ways.
                ("1e2", Err(AS_A_STRING)),
                ("42.0", Err(AS_A_STRING)),
                ("-0", Err(AS_A_STRING)),
                ("18446744073709551616", Err(AS_A_STRING)),
                ("-9223372036854775809", Err(AS_A_STRING)),
                ("null", Err(NEITHER)),
                ("true", Err(NEITHER)),
                ("[7]", Err(NEITHER)),
                ("{}", Err(NEITHER)),
                (r#""\ud800""#, Err("not JSON")),
                (r#""""#, Err("the field `order.id` is empty")),
            ],
        ),
        (
            id.parse::<u64>(),
            &id_is,
            &[
                (r#""0042""#, Ok("42")),
                ("42", Ok("42")),
                (r#""4e1""#, Err(NOT_VALID)),
            ],
        ),
    ] {
        let app = app(key("k", part)).await;
        for (value, outcome) in cases {
            match outcome {
                Ok(key) => assert_eq!(text(&app, request(value)).await, format!("k:{key}")),
                Err(reason) => refused(&app, request(value), 400, reason).await,
            }
        }
    }
}

#[derive(Deserialize)]
struct Seat {
    row: u8,
    seat: u8,
}

#[tokio::test(start_paused = true)]
async fn a_header_occurs_once() {
    let app = app(key("tenant", header("X-Tenant"))).await;
    let none = empty(post("/orders/42"));
    refused(&app, none, 400, "`x-tenant` is missing").await;
    let twice = post("/orders/42")
        .header("x-tenant", "a")
        .header("x-tenant", "b");
    refused(&app, empty(twice), 400, "more than once").await;
}

#[test]
#[should_panic(expected = "`x tenant` is not a valid header name")]
fn an_invalid_header_name_panics() {
    let _ = header("x tenant");
}

#[tokio::test(start_paused = true)]
async fn a_layer_whose_key_no_request_can_have_is_misconfigured() {
    let request = || empty(post("/orders/42"));
    let user = typed(|Extension(user): Extension<User>| user.name);
    for (key, reason) in [
        (key("user", user), "Missing request extension"),
        (
            key("order", path("ordre")),
            "the route `/orders/{order}` has no path parameter `ordre`",
        ),
        (key("order", []), "no parts"),
        (key("", path("order")), "empty scope"),
    ] {
        misconfigured(&app(key).await, request(), reason).await;
    }
    let by_intent = |_: &Request| Err::<String, _>(KeyRejection::layer("by intent"));
    misconfigured(&app(by_intent).await, request(), "by intent").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_matches_no_route_needs_no_key() {
    for part in [path("order"), matched_path()] {
        let nowhere = send(&app(key("k", part)).await, empty(post("/nowhere"))).await;
        assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_all_sources_make_one_key_and_different_parts_never_the_same() {
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
    let all = app(key("all", parts))
        .await
        .layer(Extension(User { name: "ada" }));
    let request = post("/orders/42?shop=a:b")
        .header("x-tenant", "acme")
        .body(Body::from(r#"{"order": {"id": -7}, "note": "n"}"#));
    let said = text(&all, request.unwrap()).await;
    assert_eq!(said, r"all:-7:ada:42:a\:b:/orders/{order}:acme:POST:n");

    let app = app(key("order", [header("x-tenant"), path("order")])).await;
    for (tenant, order, key) in [
        ("a", "b", "order:a:b"),
        ("a:b", "c", r"order:a\:b:c"),
        ("a", "b:c", r"order:a:b\:c"),
    ] {
        let request = empty(post(&format!("/orders/{order}")).header("x-tenant", tenant));
        assert_eq!(text(&app, request).await, key);
    }
    // In the handler's own code.
    let by_hand = Key::parts(["order", "a:b", "c"]).unwrap();
    assert_eq!(by_hand.as_bytes(), br"order:a\:b:c");
}

#[derive(Clone)]
struct User {
    name: &'static str,
}

#[tokio::test(start_paused = true)]
async fn a_tuple_locks_all_of_its_keys() {
    let account = |field: &str| key("account", json_field(field, 1024));
    let nodes = TestNodes::new();
    let keys = (account("from"), account("to"), key("order", path("order")));
    let layer = LockLayer::new(nodes.connect().await.unwrap(), keys).wait(MS(50));
    let app = layered(layer.prefix("app/"));
    let with = |body: Value| {
        let body = Body::from(body.to_string());
        post("/orders/1").body(body).unwrap()
    };
    let transfer = |from: u32, to: u32| with(json!({ "from": from, "to": to }));
    let several = text(&app, transfer(7, 3)).await;
    assert_eq!(several, "app/account:3 and app/account:7 and app/order:1");
    let fewer = text(&app, transfer(7, 7)).await;
    assert_eq!(
        fewer, "app/account:7 and app/order:1",
        "no key is locked twice"
    );
    let _other = nodes.contend("app/account:3").await.unwrap();
    for contended in [transfer(3, 5), transfer(5, 3)] {
        problem(send(&app, contended).await, 423, "locked").await;
    }
    let incomplete = with(json!({ "from": 1 }));
    refused(&app, incomplete, 400, "no field `to`").await;
}

#[tokio::test(start_paused = true)]
async fn fields_of_one_key_share_the_body_and_the_strictest_limit() {
    let app = app(key("pair", [json_field("a", 100), json_field("b", 20)])).await;
    let with = |body: &'static str| post("/orders/42").body(Body::from(body)).unwrap();
    assert_eq!(text(&app, with(r#"{"a":1,"b":"2"}"#)).await, "pair:1:2");
    refused(
        &app,
        with(r#"{"a":1,"b":"2","c":3456}"#),
        413,
        "over 20 bytes",
    )
    .await;
}

/// A route `/orders/{order}` whose handler responds with its keys. Use on a paused runtime.
async fn app<K: RequestKey>(key: K) -> Router {
    let redlock = TestNodes::new().connect().await.unwrap();
    layered(LockLayer::new(redlock, key))
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
