//! Requests over real connections: clients that leave, and the shutdown of the server.

use futures::FutureExt;
use redlock_axum::TaskTracker;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

use crate::support::{
    Bed,
    server::{
        Happened::{Begun, Dropped, Ended},
        LIMIT, ROCK, VERSIONS, Work, send, serve,
    },
};

#[tokio::test]
async fn a_handler_whose_client_leaves_runs_to_its_end_and_a_shutdown_waits_for_it() {
    for client in VERSIONS {
        let (it, work) = (Bed::new().await, Work::new());
        let tasks = TaskTracker::new();
        let app = work.app(it.layer().tasks(tasks.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        let caller = send(&client(), at);
        work.until_begun().await;
        caller.abort();
        stop.send(()).unwrap();
        // It waits for its connections.
        timeout(LIMIT, server).await.unwrap().unwrap().unwrap();
        tasks.close();
        assert!(tasks.wait().now_or_never().is_none());
        assert!(it.nodes.is_locked(ROCK));
        work.let_end();
        timeout(LIMIT, tasks.wait()).await.unwrap();
        assert_eq!(work.happened(), [Begun, Ended]);
        let report = timeout(LIMIT, it.redlock.shutdown(None)).await.unwrap();
        assert_eq!((report.held, report.abandoned), (0, 0));
        assert!(!it.nodes.is_locked(ROCK));
    }
}

#[tokio::test]
async fn cancel_on_disconnect_drops_the_handler_with_its_client() {
    for client in VERSIONS {
        let (it, work) = (Bed::new().await, Work::new());
        let at = serve(work.app(it.layer().cancel_on_disconnect())).await;
        let caller = send(&client(), at);
        work.until_begun().await;
        assert!(it.nodes.is_locked(ROCK));
        caller.abort();
        it.until_free(ROCK).await;
        assert_eq!(work.happened(), [Begun, Dropped]);
    }
}
