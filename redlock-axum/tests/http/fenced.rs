//! Fencing tokens behind a layer.

use axum::extract::Request;
use redlock_axum::{LockLayer, LockRequest, Locked};
use redlock_tokio::LockOptions;

use crate::support::{Bed, event_route, post, text};

#[tokio::test(start_paused = true)]
async fn each_handler_of_a_fenced_layer_or_request_has_a_larger_token() {
    let it = Bed::new().await;
    let handler = async |locked: Locked| match locked.fencing_token() {
        Some(token) => token.to_string(),
        None => "none".to_owned(),
    };
    let by_query = |request: &Request| {
        let wanted = LockRequest::new("event:rock");
        match request.uri().query() {
            Some("fenced") => wanted.fenced(true),
            _ => wanted,
        }
    };
    let by_query = event_route(handler, LockLayer::new(it.redlock.clone(), by_query));
    let fenced_options = it.layer().options(LockOptions::new().fenced(true));
    for plain in [&event_route(handler, it.layer()), &by_query] {
        assert_eq!(text(post(plain, "/events/rock").await).await, "none");
    }
    let mut last = 0;
    for app in [
        event_route(handler, it.layer().fenced(true)),
        event_route(handler, fenced_options),
        by_query,
        event_route(handler, it.layer().fenced(true)),
    ] {
        let token = text(post(&app, "/events/rock?fenced").await).await;
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}
