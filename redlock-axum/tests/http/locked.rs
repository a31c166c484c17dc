//! The extractor `Locked`, as a handler uses it.

use axum::{
    Router,
    handler::Handler,
    http::{Method, StatusCode},
    routing::post as routed_post,
};
use redlock_axum::{LockLost, Locked};
use tokio::sync::mpsc;

use crate::support::{Bed, MS, event_route, misconfigured, post, problem, request, text};

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
