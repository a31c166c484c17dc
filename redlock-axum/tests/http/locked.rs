//! The extractor `Locked`, as a handler uses it.

use axum::{
    Router,
    handler::Handler,
    http::{Method, StatusCode},
    routing::post as routed_post,
};
use redlock_axum::{LockLost, Locked};
use tokio::{sync::mpsc, time::sleep};

use crate::support::{
    Bed, MS, event_route, key_of, misconfigured, post, problem, request, terms, text,
};

/// A handler at `/events/{event}`, behind the layer of the bed.
fn app<H: Handler<T, ()>, T: 'static>(it: &Bed, handler: H) -> Router {
    event_route(handler, it.layer().wait(MS(50)))
}

#[tokio::test(start_paused = true)]
async fn without_the_layer_the_response_is_a_500_and_the_log_names_the_fix() {
    let app = Router::new().route("/", routed_post(async |_: Locked| "ran"));
    let fix = "add a redlock_axum::LockLayer";
    misconfigured(&app, request(Method::POST, "/"), fix).await;

    let optional = async |locked: Option<Locked>| format!("{}", locked.is_some());
    let app = Router::new().route("/", routed_post(optional));
    assert_eq!(text(post(&app, "/").await).await, "false");
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_detect_that_its_lock_is_lost() {
    let it = Bed::new().await;
    let nodes = it.nodes.clone();
    let handler = async move |locked: Locked| {
        locked.ensure()?;
        nodes.lose_held("event:rock");
        locked.lost().await;
        assert!(!locked.is_valid() && locked.remaining().is_zero());
        locked.ensure()?;
        Ok::<_, LockLost>("committed")
    };
    let body = problem(post(&app(&it, handler), "/events/rock").await, 500, "lost").await;
    assert_eq!(terms(&body), (true, None));
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_see_and_extend_its_lock() {
    let it = Bed::new().await;
    let handler = async |locked: Locked| {
        let ttl = locked.remaining();
        sleep(MS(2000)).await;
        let left = locked.remaining();
        locked.extend().await.unwrap();
        assert!(left < ttl && locked.remaining() > left && locked.is_valid());
        key_of(&locked)
    };
    let said = text(post(&app(&it, handler), "/events/rock").await).await;
    assert_eq!(said, "event:rock");
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_release_its_lock_early() {
    let it = Bed::new().await;
    let nodes = it.nodes.clone();
    let handler = async move |locked: Locked| {
        assert!(nodes.is_locked("event:rock"));
        let report = locked.clone().release_early().await;
        assert!(report.is_some());
        assert!(locked.clone().release_early().await.is_none(), "once");
        assert!(locked.into_owned().is_none(), "it is gone");
        let another = nodes.contend("event:rock").await;
        another.map(|_| "free").unwrap_or("held")
    };
    let said = text(post(&app(&it, handler), "/events/rock").await).await;
    assert_eq!(said, "free");
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_take_its_lock_over_for_work_after_the_response() {
    let it = Bed::new().await;
    let (done, is_done) = tokio::sync::oneshot::channel::<()>();
    let is_done = std::sync::Arc::new(std::sync::Mutex::new(Some(is_done)));
    let handler = async move |locked: Locked| {
        let guard = locked.into_owned().expect("it was not taken over before");
        let is_done = is_done.lock().unwrap().take().unwrap();
        tokio::spawn(async move {
            is_done.await.unwrap();
            guard.release().await;
        });
        "accepted"
    };
    let app = app(&it, handler);
    assert_eq!(text(post(&app, "/events/rock").await).await, "accepted");
    assert!(it.nodes.is_locked("event:rock"));
    problem(post(&app, "/events/rock").await, 423, "locked").await;
    done.send(()).unwrap();
    assert!(it.redlock.lock("event:rock").await.is_ok());
}

/// The worker is another process, with a client of its own.
#[tokio::test(start_paused = true)]
async fn a_worker_finishes_under_the_lock_what_a_handler_has_accepted() {
    let it = Bed::new().await;
    let worker = it.nodes.connect().await.unwrap();
    let (jobs, mut accepted) = mpsc::channel(1);
    let handler = async move |locked: Locked| {
        let guard = locked.into_owned().ok_or(LockLost)?;
        let ticket = guard.into_ticket().map_err(|_| LockLost)?;
        jobs.send(ticket).await.map_err(|_| LockLost)?;
        Ok::<_, LockLost>(StatusCode::ACCEPTED)
    };
    let app = app(&it, handler);
    let response = post(&app, "/events/rock").await;
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    // On its way to the worker, the lock is nobody's, and taken.
    problem(post(&app, "/events/rock").await, 423, "locked").await;
    let ticket = accepted.recv().await.unwrap();
    let guard = worker.adopt(ticket.clone()).await.unwrap();
    problem(post(&app, "/events/rock").await, 423, "locked").await;
    guard.release().await;
    assert!(worker.adopt(ticket).await.is_err(), "a job delivered twice");
    let again = post(&app, "/events/rock").await;
    assert_eq!(again.status(), StatusCode::ACCEPTED);
}
