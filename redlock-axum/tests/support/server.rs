//! A server, its clients, and handlers that the test controls.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::post,
};
use redlock_axum::{CompositeKey, LockLayer, Locked, key, path};
use redlock_tokio::{Hold, Redlock, RedlockBuilder, test_util::TestNodes};
use reqwest::{Client, ClientBuilder};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, timeout},
};

pub(crate) use super::MS;

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
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(configure: impl FnOnce(RedlockBuilder) -> RedlockBuilder) -> Self {
        let nodes = TestNodes::new();
        Self {
            redlock: configure(nodes.builder()).build().await.unwrap(),
            nodes,
            work: Work::default(),
        }
    }

    pub(crate) fn layer(&self) -> LockLayer<CompositeKey> {
        // No test reaches the end of this wait, unless it sets another.
        LockLayer::new(self.redlock.clone(), key("event", path("event"))).wait(3 * LIMIT)
    }

    /// Serves `/events/{event}` with handlers that work.
    pub(crate) async fn serve(&self, layer: LockLayer<CompositeKey>) -> SocketAddr {
        serve(self.app(layer)).await
    }

    pub(crate) fn app(&self, layer: LockLayer<CompositeKey>) -> Router {
        let handler = async |State(work): State<Work>, locked: Locked| work.run(locked).await;
        Router::new()
            .route("/events/{event}", post(handler))
            .route_layer(layer)
            .layer(from_fn_with_state(self.work.clone(), count_the_left))
            .with_state(self.work.clone())
    }

    pub(crate) fn is_locked(&self, key: &str) -> bool {
        self.nodes.is_locked(key)
    }

    pub(crate) async fn until_free(&self, key: &str) {
        let is_gone = || !self.nodes.nodes().iter().any(|it| it.contains(key));
        until("the lock is released", is_gone).await;
        until("the lock is free", || self.redlock.queue().keys == 0).await;
    }
}

/// The work of handlers: each reports its start, and goes on when the test allows it.
#[derive(Clone, Default)]
pub(crate) struct Work(Arc<Counts>);

struct Counts {
    entered: AtomicUsize,
    ended: AtomicUsize,
    dropped: AtomicUsize,
    /// Responses that the server has dropped before they were complete.
    left: AtomicUsize,
    may_end: Semaphore,
    holds: Mutex<Vec<Hold>>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            entered: AtomicUsize::default(),
            ended: AtomicUsize::default(),
            dropped: AtomicUsize::default(),
            left: AtomicUsize::default(),
            may_end: Semaphore::new(0),
            holds: Mutex::default(),
        }
    }
}

impl Work {
    pub(crate) async fn run(&self, locked: Locked) {
        self.0.holds.lock().unwrap().push((*locked).clone());
        self.0.entered.fetch_add(1, SeqCst);
        let mut end = CountDrop(Some(&self.0.dropped));
        self.0.may_end.acquire().await.unwrap().forget();
        end.0 = None;
        self.0.ended.fetch_add(1, SeqCst);
    }

    /// Allows one handler to go on.
    pub(crate) fn let_end(&self) {
        self.0.may_end.add_permits(1);
    }

    pub(crate) async fn until_entered(&self, times: usize) {
        until("handlers run", || self.entered() == times).await;
    }

    pub(crate) async fn until_left(&self, times: usize) {
        let has_seen = || self.0.left.load(SeqCst) == times;
        until("the server sees that the client is gone", has_seen).await;
    }

    pub(crate) fn entered(&self) -> usize {
        self.0.entered.load(SeqCst)
    }

    pub(crate) fn ended(&self) -> usize {
        self.0.ended.load(SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped.load(SeqCst)
    }

    /// The lock that the last handler ran under.
    pub(crate) fn hold(&self) -> Hold {
        self.0.holds.lock().unwrap().last().unwrap().clone()
    }
}

/// Counts its own drop, unless it was disarmed before.
struct CountDrop<'a>(Option<&'a AtomicUsize>);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_add(1, SeqCst);
        }
    }
}

async fn count_the_left(State(work): State<Work>, request: Request, next: Next) -> Response {
    let mut left = CountDrop(Some(&work.0.left));
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
