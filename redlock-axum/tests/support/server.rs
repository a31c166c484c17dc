//! A server, and conditions that a test waits for.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use axum::Router;
use tokio::{net::TcpListener, time::sleep};

use super::{Bed, MS};

/// A limit that no step of a test reaches, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The key of the requests to `/events/rock`.
pub(crate) const ROCK: &str = "event:rock";

impl Bed {
    pub(crate) async fn until_waiting(&self, requests: usize) {
        let wait = || self.redlock.queue().waiting == requests;
        until(&format!("{requests} wait"), wait).await;
    }

    pub(crate) async fn until_free(&self, key: &str) {
        let is_gone = || !self.nodes.nodes().iter().any(|it| it.contains(key));
        until("the lock is released", is_gone).await;
        until("the lock is free", || self.redlock.queue().keys == 0).await;
    }
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    at
}

/// Waits until a condition is true, within a generous limit.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < give_up, "not in time: {what}");
        sleep(MS(1)).await;
    }
}
