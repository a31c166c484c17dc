//! The advice of the README on where to put the layer, and what happens at other places.

use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post as routed_post,
};
use futures::{future::join_all, stream};
use redlock_axum::Locked;
use tokio::time::{Instant, sleep, timeout};
use tower::limit::GlobalConcurrencyLimitLayer;

use crate::support::{Bed, MS, post, send};

/// Refuses every request.
async fn authenticate(_request: Request, _next: Next) -> Response {
    StatusCode::UNAUTHORIZED.into_response()
}

#[tokio::test(start_paused = true)]
async fn a_request_without_permission_does_not_queue_if_the_lock_is_inside() {
    for (lock_is_inside, status, waits) in [(true, 401, Duration::ZERO), (false, 423, MS(5000))] {
        let it = Bed::new().await;
        let _guard = it.nodes.contend("event:rock").await.unwrap();
        let app = if lock_is_inside {
            it.app(it.layer()).route_layer(from_fn(authenticate))
        } else {
            let inner = it.router().route_layer(from_fn(authenticate));
            inner.route_layer(it.layer())
        };
        let asked = Instant::now();
        assert_eq!(post(&app, "/events/rock").await.status(), status);
        assert!(asked.elapsed() <= waits && asked.elapsed() + MS(200) >= waits);
    }
}

/// The value that a transaction writes when it commits.
#[derive(Clone, Default)]
struct Write(Arc<AtomicU64>);

/// Sells fifty tickets at once, and returns how many are sold in the end. Each transaction reads the number of sold
/// tickets and writes one more when it commits, which takes a while.
async fn sell_fifty(transaction_is_inside: bool) -> u64 {
    let it = Bed::new().await;
    let sold = Arc::new(AtomicU64::new(0));
    let transaction = from_fn({
        let sold = Arc::clone(&sold);
        move |mut request: Request, next: Next| {
            let (sold, write) = (Arc::clone(&sold), Write::default());
            request.extensions_mut().insert(write.clone());
            async move {
                let response = next.run(request).await;
                sleep(MS(1)).await;
                sold.store(write.0.load(SeqCst), SeqCst);
                response
            }
        }
    });
    let handler = {
        let sold = Arc::clone(&sold);
        async move |Extension(write): Extension<Write>| {
            write.0.store(sold.load(SeqCst) + 1, SeqCst);
        }
    };
    let route = Router::new().route("/events/{event}", routed_post(handler));
    let app = if transaction_is_inside {
        route.route_layer(transaction).route_layer(it.layer())
    } else {
        route.route_layer(it.layer()).route_layer(transaction)
    };
    let sales = (0..50).map(|_| post(&app, "/events/rock"));
    let statuses = join_all(sales).await.into_iter().map(|it| it.status());
    assert_eq!(statuses.filter(|it| it.is_success()).count(), 50);
    sold.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_transaction_inside_the_lock_is_committed_before_the_next_begins() {
    assert_eq!(sell_fifty(true).await, 50);
    let sold = sell_fifty(false).await;
    // Committed after the release, updates are lost.
    assert!(sold < 50, "{sold}");
}

/// Gives a request two seconds.
async fn time_out(request: Request, next: Next) -> Response {
    let response = timeout(MS(2000), next.run(request)).await;
    response.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_the_lock_starts_when_the_lock_is_held() {
    for (timeout_is_inside, is_served) in [(true, true), (false, false)] {
        let it = Bed::new().await;
        let time_out = from_fn(time_out);
        let app = if timeout_is_inside {
            it.router().route_layer(time_out).route_layer(it.layer())
        } else {
            it.app(it.layer()).route_layer(time_out)
        };
        let guard = it.nodes.contend("event:rock").await.unwrap();
        let free = async {
            sleep(MS(3000)).await;
            guard.release().await;
        };
        let (response, ()) = tokio::join!(post(&app, "/events/rock"), free);
        assert_eq!(response.status().is_success(), is_served);
        assert_eq!(
            it.ran(),
            usize::from(is_served),
            "the request that timed out has left the queue"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_times_out_releases_its_lock() {
    let it = Bed::new().await;
    let hangs = routed_post(async |_: Locked| pending::<()>().await);
    let app = Router::new().route("/events/{event}", hangs);
    let app = app.route_layer(from_fn(time_out)).route_layer(it.layer());
    let asked = Instant::now();
    let status = post(&app, "/events/rock").await.status();
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert!(asked.elapsed() < MS(2100));
    assert!(it.nodes.contend("event:rock").await.is_ok());
}

/// A client that opens requests and resets them can start handlers without end, unless a limit is inside.
#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_inside_the_lock_counts_handlers_whose_clients_are_gone() {
    for (limit_is_inside, expected) in [(true, 2), (false, 5)] {
        let it = Bed::new().await;
        let begun = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&begun);
        let handler = routed_post(async move || {
            count.fetch_add(1, SeqCst);
            pending::<()>().await;
        });
        let limit = GlobalConcurrencyLimitLayer::new(2);
        let route = Router::new().route("/events/{event}", handler);
        let app = if limit_is_inside {
            route.route_layer(limit).route_layer(it.layer())
        } else {
            route.route_layer(it.layer()).route_layer(limit)
        };
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
    for (limit_is_outside, expected) in [(true, 2), (false, 5)] {
        let it = Bed::new().await;
        let limit = GlobalConcurrencyLimitLayer::new(2);
        let app = if limit_is_outside {
            it.app(it.layer()).route_layer(limit)
        } else {
            it.router().route_layer(limit).route_layer(it.layer())
        };
        let begun = Arc::new(AtomicU64::new(0));
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
