//! A client that leaves. A server then drops the future of the response. `nested` has the layer that cancels.

use std::sync::Arc;

use futures::FutureExt;
use redlock_axum::{Locked, TaskTracker};
use tokio::{sync::Notify, time::timeout};

use crate::support::{
    Bed, event_route, post,
    server::{LIMIT, ROCK},
};

#[tokio::test]
async fn a_handler_whose_client_leaves_runs_to_its_end_and_a_shutdown_waits_for_it() {
    let it = Bed::new().await;
    let [begun, may_end, ended] = [(); 3].map(|()| Arc::new(Notify::new()));
    let events = [&begun, &may_end, &ended].map(Arc::clone);
    let handler = async move |_: Locked| {
        let [begun, may_end, ended] = &events;
        begun.notify_one();
        may_end.notified().await;
        ended.notify_one();
    };
    let tasks = TaskTracker::new();
    let app = event_route(handler, it.layer().tasks(tasks.clone()));
    let caller = tokio::spawn(async move { post(&app, "/events/rock").await });
    timeout(LIMIT, begun.notified()).await.unwrap();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    tasks.close();
    assert!(tasks.wait().now_or_never().is_none());
    assert!(it.nodes.is_locked(ROCK));
    may_end.notify_one();
    timeout(LIMIT, tasks.wait()).await.unwrap();
    assert!(ended.notified().now_or_never().is_some());
    let report = timeout(LIMIT, it.redlock.shutdown(None)).await.unwrap();
    assert_eq!((report.held, report.abandoned), (0, 0));
    assert!(!it.nodes.is_locked(ROCK));
}
