//! A server, its clients, and handlers that the test controls.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use redlock_axum::{CompositeKey, LockLayer, Locked, key, path};
use redlock_tokio::{Redlock, test_util::TestNodes};
use reqwest::{Client, ClientBuilder};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{MS, event_route};

/// A limit that no step of a test reaches, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The key of the requests to `/events/rock`.
pub(crate) const ROCK: &str = "event:rock";

pub(crate) struct Fixture {
    pub(crate) nodes: TestNodes,
    pub(crate) redlock: Redlock,
    pub(crate) work: Work,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let nodes = TestNodes::new();
        Self {
            redlock: nodes.connect().await.unwrap(),
            nodes,
            work: Work {
                happened: Arc::default(),
                may_end: Arc::new(Semaphore::new(0)),
            },
        }
    }

    pub(crate) fn layer(&self) -> LockLayer<CompositeKey> {
        // No test reaches the end of this wait, unless it sets another.
        LockLayer::new(self.redlock.clone(), key("event", path("event"))).wait(3 * LIMIT)
    }

    /// Returns the route `/events/{event}` with handlers that work.
    pub(crate) fn app(&self, layer: LockLayer<CompositeKey>) -> Router {
        let work = self.work.clone();
        let app = event_route(async move |_: Locked| work.run().await, layer);
        app.layer(from_fn_with_state(self.work.clone(), note_the_left))
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
    /// A handler was dropped before its end.
    Dropped,
    /// The server has dropped a response before it was complete.
    Left,
}

impl Work {
    async fn run(&self) {
        self.note(Happened::Begun);
        let mut dropped = OnDrop(Some(self), Happened::Dropped);
        self.may_end.acquire().await.unwrap().forget();
        dropped.0 = None;
        self.note(Happened::Ended);
    }

    /// Allows one handler to go on.
    pub(crate) fn let_end(&self) {
        self.may_end.add_permits(1);
    }

    /// Returns what has happened to handlers and responses, in this order.
    pub(crate) fn happened(&self) -> Vec<Happened> {
        self.happened.lock().unwrap().clone()
    }

    pub(crate) async fn until(&self, what: Happened) {
        let name = format!("{what:?}");
        until(&name, || self.happened().contains(&what)).await;
    }

    fn note(&self, what: Happened) {
        self.happened.lock().unwrap().push(what);
    }
}

/// Notes its own drop, unless it was disarmed before.
struct OnDrop<'a>(Option<&'a Work>, Happened);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.0 {
            work.note(self.1);
        }
    }
}

async fn note_the_left(State(work): State<Work>, request: Request, next: Next) -> Response {
    let mut left = OnDrop(Some(&work), Happened::Left);
    let response = next.run(request).await;
    left.0 = None;
    response
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    at
}

/// Waits until a condition is true, within a generous limit.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < give_up, "not in time: {what}");
        sleep(MS(1)).await;
    }
}

/// Returns a function that makes a client of each HTTP version, with connections of its own.
pub(crate) const VERSIONS: [fn() -> Client; 2] = [
    || client(Client::builder().http1_only()),
    || client(Client::builder().http2_prior_knowledge()),
];

fn client(builder: ClientBuilder) -> Client {
    builder.no_proxy().build().unwrap()
}

pub(crate) type Sent = JoinHandle<reqwest::Result<reqwest::Response>>;

/// Sends a request to `/events/rock` in a task. Aborting the task disconnects the client.
pub(crate) fn send(client: &Client, at: SocketAddr) -> Sent {
    tokio::spawn(client.post(format!("http://{at}/events/rock")).send())
}

pub(crate) async fn answer(sent: Sent) -> reqwest::Response {
    let response = timeout(LIMIT, sent).await.expect("an answer in time");
    response.unwrap().unwrap()
}
