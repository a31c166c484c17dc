//! Requests over real connections: clients that leave, handlers that panic, and the shutdown of the server.

use std::convert::Infallible;

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use futures::FutureExt;
use redlock_axum::{LockLayer, Locked, TaskTracker};
use reqwest::StatusCode;
use tokio::{net::TcpListener, time::timeout};
use tower::util::MapFutureLayer;

use crate::support::{
    When,
    server::{Fixture, LIMIT, ROCK, VERSIONS, Work, answer, send, serve, until},
};

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_takes_no_lock() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let at = it.serve(it.layer()).await;
        let guard = it.redlock.lock(ROCK).await.unwrap();
        let waiting = send(&client(), at);
        until("it waits", || it.redlock.queue().waiting == 1).await;
        waiting.abort();
        until("its place is gone", || it.redlock.queue().waiting == 0).await;
        drop(guard);
        it.until_free(ROCK).await;

        // The same, behind a holder in another process.
        let guard = it.nodes.contend(ROCK).await.unwrap();
        let waiting = send(&client(), at);
        until("it waits", || it.redlock.queue().keys == 1).await;
        waiting.abort();
        until("its place is gone", || it.redlock.queue().keys == 0).await;
        assert!(it.is_locked(ROCK));
        guard.release().await;
        it.until_free(ROCK).await;
        assert!(it.redlock.try_lock(ROCK).await.is_ok());
        assert_eq!(it.work.entered(), 0);
    }
}

#[tokio::test]
async fn a_handler_keeps_running_under_its_lock_when_the_client_leaves() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let at = it.serve(it.layer()).await;
        let caller = send(&client(), at);
        it.work.until_entered(1).await;
        caller.abort();
        it.work.until_left(1).await;
        let next = send(&client(), at);
        until("the next waits", || it.redlock.queue().waiting == 1).await;
        assert!(it.is_locked(ROCK));
        assert_eq!((it.work.dropped(), it.work.entered()), (0, 1));
        it.work.let_end();
        it.work.until_entered(2).await;
        assert_eq!(it.work.ended(), 1, "one after the other");
        it.work.let_end();
        assert_eq!(answer(next).await.status(), StatusCode::OK);
        it.until_free(ROCK).await;
    }
}

#[tokio::test]
async fn cancel_on_disconnect_drops_the_handler_with_its_client() {
    for client in VERSIONS {
        for lasts in [false, true] {
            let it = Fixture::new().await;
            let layer = it.layer().cancel_on_disconnect();
            let layer = layer.when(lasts, |it| it.hold_until_body_end(LIMIT));
            let at = it.serve(layer).await;
            let caller = send(&client(), at);
            it.work.until_entered(1).await;
            assert!(it.is_locked(ROCK));
            caller.abort();
            it.until_free(ROCK).await;
            assert_eq!((it.work.dropped(), it.work.ended()), (1, 0));
        }
    }
}

/// Responds to panics further in, as a layer that catches panics does.
fn catch_panic<F>(response: F) -> impl Future<Output = Result<Response, Infallible>>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let caught = std::panic::AssertUnwindSafe(response).catch_unwind();
    caught.map(|it| it.unwrap_or_else(|_| Ok(StatusCode::IM_A_TEAPOT.into_response())))
}

#[tokio::test]
async fn the_lock_of_a_handler_that_panics_is_released_and_not_handed_over() {
    for client in VERSIONS {
        for catches in [false, true] {
            for cancels in [false, true] {
                for panics in [true, false] {
                    // The limit for handovers never ends here, so only the panic prevents one.
                    let it = Fixture::with(|builder| builder.handover_for(3 * LIMIT)).await;
                    let handler = async move |State(work): State<Work>, locked: Locked| {
                        work.run(locked).await;
                        assert!(!panics || work.ended() > 1, "the first, by intent");
                    };
                    let layer = it.layer().when(cancels, LockLayer::cancel_on_disconnect);
                    let app = Router::new().route("/events/{event}", post(handler));
                    let app = app.with_state(it.work.clone()).route_layer(layer);
                    let catch = MapFutureLayer::new(catch_panic);
                    let app = app.when(catches, |app| app.layer(catch));
                    let at = serve(app).await;

                    let first = send(&client(), at);
                    it.work.until_entered(1).await;
                    let first_token = it.work.hold().token();
                    let second = send(&client(), at);
                    until("it waits", || it.redlock.queue().waiting == 1).await;
                    it.work.let_end();
                    it.work.until_entered(2).await;
                    let case = format!("catches: {catches}, cancels: {cancels}, panics: {panics}");
                    let is_handed_over = first_token == it.work.hold().token();
                    assert_eq!(is_handed_over, !panics, "{case}");
                    let first = timeout(LIMIT, first).await.unwrap().unwrap();
                    match (panics, catches) {
                        (true, true) => assert_eq!(first.unwrap().status(), 418, "{case}"),
                        (true, false) => assert!(first.is_err(), "{case}"),
                        (false, _) => assert_eq!(first.unwrap().status(), 200, "{case}"),
                    }
                    it.work.let_end();
                    assert_eq!(answer(second).await.status(), 200, "{case}");
                    it.until_free(ROCK).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_whose_clients_have_left() {
    for client in VERSIONS {
        let it = Fixture::new().await;
        let tasks = TaskTracker::new();
        let app = it.app(it.layer().tasks(tasks.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        let caller = send(&client(), at);
        it.work.until_entered(1).await;
        caller.abort();
        it.work.until_left(1).await;
        stop.send(()).unwrap();
        timeout(LIMIT, server).await.unwrap().unwrap().unwrap();
        tasks.close();
        assert!(tasks.wait().now_or_never().is_none());
        assert!(it.is_locked(ROCK));
        it.work.let_end();
        timeout(LIMIT, tasks.wait()).await.unwrap();
        assert_eq!((it.work.ended(), it.work.dropped()), (1, 0));
        let report = timeout(LIMIT, it.redlock.shutdown(None)).await.unwrap();
        assert_eq!((report.held, report.abandoned), (0, 0));
        assert!(!it.is_locked(ROCK));
    }
}
