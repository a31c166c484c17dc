//! A client that leaves. A server then drops the future of the response. `nested` has the layer that cancels.

use futures::FutureExt;
use redlock_axum::TaskTracker;
use tokio::time::timeout;

use crate::support::{
    Bed, post,
    server::{
        Happened::{Begun, Ended},
        LIMIT, ROCK, Work,
    },
};

#[tokio::test]
async fn a_handler_whose_client_leaves_runs_to_its_end_and_a_shutdown_waits_for_it() {
    let (it, work) = (Bed::new().await, Work::new());
    let tasks = TaskTracker::new();
    let app = work.app(it.layer().tasks(tasks.clone()));
    let caller = tokio::spawn(async move { post(&app, "/events/rock").await });
    work.until_begun().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
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
