//! Limits of a layer: how many requests wait, for how long, and for how many keys.

use std::time::Duration;

use axum::{Router, extract::Request};
use futures::future::join_all;
use redlock_axum::{LockLayer, LockRequest, Locked};
use redlock_tokio::LockOptions;
use tokio::time::{Instant, sleep};

use crate::support::{Bed, MS, event_route, post, problem, terms, text};

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_429() {
    let it = Bed::new().await;
    let layer = it.layer().retry_after(MS(2500));
    for (of_key, of_layer, which) in [
        (1, 8, "already wait for this resource."),
        (8, 1, "already wait, for this resource or for others."),
    ] {
        let app = it.app(
            layer
                .clone()
                .max_waiters_per_key(of_key)
                .max_waiters_total(of_layer),
        );
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
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.contains(which), "{detail}");

        // Nobody holds this event, so the request need not wait.
        assert_eq!(post(&app, "/events/jazz").await.status(), 200);
        drop(guard);
        // Requests that were refused or served no longer count as waiters.
        text(waiting.await.unwrap()).await;
        text(post(&app, "/events/rock").await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_free_keys_are_served_however_many_there_are() {
    let it = Bed::new().await;
    let app = it.app(it.layer());
    let requests = (0..2000).map(|event| {
        let app = app.clone();
        async move { post(&app, &format!("/events/{event}")).await.status() }
    });
    let statuses = join_all(requests).await;
    let refused = statuses.iter().filter(|it| **it != 200).count();
    assert_eq!(refused, 0, "of 2000");
}

#[tokio::test(start_paused = true)]
async fn an_expected_wait_over_the_limit_is_429_at_once_with_refuse_long_waits() {
    let it = Bed::new().await;
    // Each request holds the lock for 4 s, so a request behind two waiters would wait for more than 5 s.
    let app = |layer: LockLayer<_>| {
        let slow = async |_: Locked| sleep(MS(4000)).await;
        event_route(slow, layer)
    };
    let start = |app: &Router| {
        let app = app.clone();
        tokio::spawn(async move { post(&app, "/events/rock").await })
    };
    for _ in 0..8 {
        assert_eq!(post(&app(it.layer()), "/events/rock").await.status(), 200);
    }
    let refusing = LockOptions::new().refuse_long_waits();
    for (layer, is_refused) in [(it.layer().options(refusing), true), (it.layer(), false)] {
        let patient = app(it.layer().wait(MS(20_000)));
        let app = app(layer);
        let _ahead: Vec<_> = (0..4).map(|_| start(&patient)).collect();
        sleep(MS(4100)).await;
        let asked = Instant::now();
        let response = post(&app, "/events/rock").await;
        if is_refused {
            assert_eq!(asked.elapsed(), Duration::ZERO);
            let body = problem(response, 429, "wait-too-long").await;
            let (handler_ran, retry_after) = terms(&body);
            assert!(!handler_ran && retry_after.is_some_and(|it| (5000..=13_000).contains(&it)));
        } else {
            problem(response, 423, "locked").await;
            assert!(asked.elapsed() >= MS(5000));
        }
        sleep(MS(20_000)).await;
    }
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
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("more than 2 resources"), "{detail}");
    assert_eq!((terms(&body), it.ran()), ((false, None), 1));
}
