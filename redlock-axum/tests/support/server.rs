//! A server, and handlers that the test controls.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::Router;
use redlock_axum::{CompositeKey, LockLayer, Locked};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};

use super::{Bed, MS, event_route};

/// A limit that no step of a test reaches, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The key of the requests to `/events/rock`.
pub(crate) const ROCK: &str = "event:rock";

impl Bed {
    /// Returns a layer whose requests wait for longer than any test takes.
    pub(crate) fn patient_layer(&self) -> LockLayer<CompositeKey> {
        self.layer().wait(3 * LIMIT)
    }

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

/// The work of handlers: each reports that it has begun, and goes on when the test allows it.
#[derive(Clone)]
pub(crate) struct Work {
    happened: Arc<Mutex<Vec<Happened>>>,
    may_end: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Happened {
    Begun,
    Ended,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            happened: Arc::default(),
            may_end: Arc::new(Semaphore::new(0)),
        }
    }

    /// Returns the route `/events/{event}` with handlers that work.
    pub(crate) fn app(&self, layer: LockLayer<CompositeKey>) -> Router {
        let work = self.clone();
        event_route(async move |_: Locked| work.run().await, layer)
    }

    async fn run(&self) {
        self.note(Happened::Begun);
        self.may_end.acquire().await.unwrap().forget();
        self.note(Happened::Ended);
    }

    /// Allows one handler to go on.
    pub(crate) fn let_end(&self) {
        self.may_end.add_permits(1);
    }

    /// Returns what has happened to handlers, in this order.
    pub(crate) fn happened(&self) -> Vec<Happened> {
        self.happened.lock().unwrap().clone()
    }

    pub(crate) async fn until_begun(&self) {
        let has_begun = || self.happened().contains(&Happened::Begun);
        until("a handler has begun", has_begun).await;
    }

    fn note(&self, what: Happened) {
        self.happened.lock().unwrap().push(what);
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
