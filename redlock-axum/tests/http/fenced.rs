//! Fencing tokens behind a layer.

use axum::{Router, extract::Request};
use redlock_axum::{LockLayer, LockRequest, Locked, RequestKey, key, path};
use redlock_tokio::LockOptions;

use crate::support::{Bed, event_route, post, text};

/// A route whose handler responds with its token.
fn app<K: RequestKey>(layer: LockLayer<K>) -> Router {
    let handler = async |locked: Locked| match locked.fencing_token() {
        Some(token) => token.to_string(),
        None => "none".to_owned(),
    };
    event_route(handler, layer)
}

#[tokio::test(start_paused = true)]
async fn each_handler_behind_a_fenced_layer_has_a_larger_token() {
    let it = Bed::new().await;
    let plain = post(&app(it.layer()), "/events/rock").await;
    assert_eq!(text(plain).await, "none");
    let mut last = 0;
    let fenced_options = it.layer().options(LockOptions::new().fenced());
    let layers = [it.layer().fenced(), fenced_options, it.layer().fenced()];
    for layer in layers {
        let token = text(post(&app(layer), "/events/rock").await).await;
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_can_ask_for_a_token_of_its_own() {
    let it = Bed::new().await;
    let by_query = |request: &Request| {
        let wanted = LockRequest::new("k");
        match request.uri().query() {
            Some("fenced") => wanted.fenced(),
            _ => wanted,
        }
    };
    let app = app(LockLayer::new(it.redlock.clone(), by_query));
    let fenced = text(post(&app, "/events/rock?fenced").await).await;
    assert!(fenced.parse::<u64>().is_ok(), "{fenced}");
    assert_eq!(text(post(&app, "/events/rock").await).await, "none");
}

#[tokio::test(start_paused = true)]
async fn several_keys_have_one_token() {
    let it = Bed::new().await;
    let event = |scope: &str| key(scope, path("event"));
    let pair = LockLayer::new(it.redlock.clone(), (event("event"), event("venue")));
    let plain = post(&app(pair.clone()), "/events/rock").await;
    assert_eq!(text(plain).await, "none");
    let fenced = pair.fenced();
    assert_eq!(fenced.check(), Ok(()));
    let closure = |_: &Request| LockRequest::all(["a", "b"]);
    let by_closure = LockLayer::new(it.redlock.clone(), closure).fenced();
    for app in [app(fenced), app(by_closure)] {
        let token = text(post(&app, "/events/rock").await).await;
        assert!(token.parse::<u64>().is_ok(), "{token}");
    }
}
