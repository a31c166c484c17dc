//! Different spellings of one value are one key, and the client cannot choose between locks.

use axum::{
    Router,
    body::Body,
    extract::{Path, Request},
    http::Method,
    routing::post as routed_post,
};
use redlock_axum::{KeyPart, LockLayer, Locked, header, json_field, key, path, query};

use crate::support::{self, Bed, MS, post, problem, refused, say_key, send, text};

/// Each of these is the order 7 to a handler with `Path<u64>`.
#[tokio::test(start_paused = true)]
async fn all_spellings_of_a_number_exclude_each_other() {
    let it = Bed::new().await;
    let order = key("order", path("order").parse::<u64>());
    let layer = LockLayer::new(it.redlock.clone(), order).wait(MS(50));
    let handler = async |Path(order): Path<u64>, locked: Locked| {
        assert!(locked.into_owned().map(std::mem::forget).is_some());
        format!("paid {order}")
    };
    let route = Router::new().route("/orders/{order}", routed_post(handler));
    let app = route.route_layer(layer);
    // The lock of the first request stays held.
    assert_eq!(text(post(&app, "/orders/7").await).await, "paid 7");
    for spelling in ["7", "07", "+7", "%2B007", "%37"] {
        let response = post(&app, &format!("/orders/{spelling}")).await;
        problem(response, 423, "locked").await;
    }
    assert_eq!(text(post(&app, "/orders/08").await).await, "paid 8");
    for nonsense in ["-7", "7.0", "0x7", "%207", "seven"] {
        let request = support::request(Method::POST, &format!("/orders/{nonsense}"));
        let reason = "the path parameter `order` is not valid";
        refused(&app, request, 400, reason).await;
    }
}

/// A route whose handler responds with its key.
async fn app(part: KeyPart) -> Router {
    let it = Bed::new().await;
    let layer = LockLayer::new(it.redlock, key("k", part));
    let route = Router::new().route("/{value}", routed_post(say_key));
    route.route_layer(layer)
}

/// Returns a request with the value in the path, the query, a header and the body.
fn request(value: &str) -> Request {
    let request = Request::post(format!("/{value}?value={value}"));
    let request = request.header("value", value);
    let body = Body::from(format!(r#"{{"value": "{value}"}}"#));
    request.body(body).unwrap()
}

fn sources() -> [KeyPart; 4] {
    [
        path("value"),
        query("value"),
        header("value"),
        json_field("value", 1024),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_value_of_each_source_can_be_parsed() {
    for part in sources() {
        let app = app(part.parse::<u64>()).await;
        for value in ["42", "0042"] {
            assert_eq!(text(send(&app, request(value)).await).await, "k:42");
        }
        refused(&app, request("4e1"), 400, "is not valid: invalid digit").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_of_each_source_can_be_folded_before_or_after() {
    for part in sources() {
        let folded = part.map(str::to_lowercase);
        let app = app(folded.map(|it: &str| it.trim_matches('-').to_owned())).await;
        for value in ["Ada", "aDA--"] {
            assert_eq!(text(send(&app, request(value)).await).await, "k:ada");
        }
        // Nothing is left.
        refused(&app, request("--"), 400, "is empty").await;
    }
}
