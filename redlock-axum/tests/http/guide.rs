//! The advice of the guide on where to put limits, and what happens at the other place.

use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use axum::{Router, body::Body, extract::Request, routing::any};
use futures::{future::join_all, stream};
use redlock_axum::{CompositeKey, LockLayer};
use tokio::time::timeout;
use tower::limit::GlobalConcurrencyLimitLayer;

use crate::support::{Bed, MS, post, send};

/// A client that opens requests and resets them can start handlers without end, unless a limit is inside.
#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_inside_the_lock_counts_handlers_whose_clients_are_gone() {
    for (limit_is_inside, expected) in [(true, 2), (false, 5)] {
        let it = Bed::new().await;
        let begun = Arc::new(AtomicU64::new(0));
        let app = limited(it.layer(), &begun, limit_is_inside);
        for event in 0..5 {
            let event = format!("/events/{event}");
            let request = timeout(MS(100), post(&app, &event));
            assert!(request.await.is_err(), "the client goes away");
        }
        assert_eq!(begun.load(SeqCst), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_outside_the_lock_bounds_the_bodies_in_memory() {
    for (limit_is_inside, expected) in [(false, 2), (true, 5)] {
        let it = Bed::new().await;
        let begun = Arc::new(AtomicU64::new(0));
        let app = limited(it.layer(), &Arc::default(), limit_is_inside);
        let requests = (0..5).map(|_| {
            let begun = Arc::clone(&begun);
            let body = stream::once(async move {
                begun.fetch_add(1, SeqCst);
                pending::<Result<&str, io::Error>>().await
            });
            let request = Request::post("/events/rock").body(Body::from_stream(body));
            send(&app, request.unwrap())
        });
        let bodies = timeout(MS(20_000), join_all(requests)).await;
        assert!(bodies.is_err());
        assert_eq!(begun.load(SeqCst), expected);
    }
}

/// Returns a route of handlers that begin and do not end, with a lock and a limit of two requests.
fn limited(lock: LockLayer<CompositeKey>, begun: &Arc<AtomicU64>, limit_is_inside: bool) -> Router {
    let begun = Arc::clone(begun);
    let handler = async move || {
        begun.fetch_add(1, SeqCst);
        pending::<()>().await;
    };
    let limit = GlobalConcurrencyLimitLayer::new(2);
    let route = Router::new().route("/events/{event}", any(handler));
    match limit_is_inside {
        true => route.route_layer(limit).route_layer(lock),
        false => route.route_layer(lock).route_layer(limit),
    }
}
