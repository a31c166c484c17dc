//! Limits of a layer: how many requests wait, for how long, and for how many keys.

use std::time::Duration;

use axum::{extract::Request, http::StatusCode};
use redlock_axum::{LockLayer, LockRequest};
use tokio::time::Instant;

use crate::support::{Bed, MS, assert_detail, may_retry, post, problem, terms, text};

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_429() {
    let it = Bed::new().await;
    let layer = it.layer().retry_after(MS(2500));
    for (of_key, of_layer, which) in [
        (1, 8, "already wait for this resource."),
        (8, 1, "already wait, for this resource or for others."),
    ] {
        let layer = layer.clone().max_waiters_per_key(of_key);
        let app = it.app(layer.max_waiters_total(of_layer));
        let guard = it.redlock.lock("event:rock").await.unwrap();
        let before = it.ran();
        let waiting = tokio::spawn({
            let app = app.clone();
            async move { post(&app, "/events/rock").await }
        });
        while it.redlock.queue().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let asked = Instant::now();
        let body = problem(post(&app, "/events/rock").await, 429, "queue-full").await;
        assert_eq!(asked.elapsed(), Duration::ZERO);
        let (handler_ran, retry_after) = terms(&body);
        assert!(retry_after.is_some_and(|it| (2500..=5000).contains(&it)));
        assert_eq!((handler_ran, it.ran()), (false, before));
        assert_detail(&body, which);

        // Nobody holds this event, so the request need not wait.
        assert_eq!(post(&app, "/events/jazz").await.status(), 200);
        drop(guard);
        text(waiting.await.unwrap()).await;
    }
}

/// A request that gets no permit is told so, with another status and another text than one that gets no lock.
#[tokio::test(start_paused = true)]
async fn without_a_free_permit_a_request_is_a_429() {
    let it = Bed::new().await;
    let app = it.app(it.layer().permits(2).wait(MS(100)));
    let event = it.redlock.semaphore("event:rock", 2);
    let first = event.acquire().await.unwrap();
    let second = event.acquire().await.unwrap();
    let body = problem(post(&app, "/events/rock").await, 429, "no-permit").await;
    assert!(may_retry(&body), "{body}");
    drop((first, second));
    text(post(&app, "/events/rock").await).await;
    let conflict = it.layer().contended_status(StatusCode::CONFLICT);
    let of_its_own = it.app(conflict.permits(1).wait(MS(0)));
    let _only = it.redlock.try_lock("event:rock:slot:0").await.unwrap();
    problem(post(&of_its_own, "/events/rock").await, 409, "no-permit").await;
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_the_layer_takes_are_a_400() {
    let it = Bed::new().await;
    let key = |request: &Request| {
        let keys = request.uri().query().unwrap_or_default();
        LockRequest::all(keys.split(','))
    };
    let layer = LockLayer::new(it.redlock.clone(), key);
    let app = it.app(layer.max_keys(2));
    text(post(&app, "/events/rock?a,b,a").await).await;
    let body = post(&app, "/events/rock?a,b,c").await;
    let body = problem(body, 400, "too-many-keys").await;
    assert_detail(&body, "more than 2 resources");
    assert_eq!((terms(&body), it.ran()), ((false, None), 1));
}
