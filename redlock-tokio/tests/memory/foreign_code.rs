//! Code of the user that panics in the tasks of the driver. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, MemoryNode, NodeError, NodeState, NotReady, Redlock, Timestamp,
    node::{Answer, Command, Node, Session},
};
use tokio::time::timeout;
use tracing::Level;

use crate::support::{
    MS,
    council::Council,
    in_memory::{over, settle, three_nodes},
    log::Log,
};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics on purpose");
    }
}

/// Polls a future once, with a waker that panics.
fn poll_oddly<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    let waker = Waker::from(Arc::new(Panics));
    let polled = future.poll_unpin(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

async fn assert_works(redlock: &Redlock) {
    let guard = redlock.lock("k").await.expect("locks are granted");
    guard.extend().await.expect("locks are extended");
    drop(guard);
    redlock.ready(Duration::ZERO).await.expect("it is ready");
    let nodes = redlock.nodes();
    let all_vote = nodes.iter().all(|it| it.state == NodeState::Voting);
    assert!(all_vote, "{nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_ends_no_task_of_the_driver() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    // A lane wakes the first one, and the timers the second one.
    let mut acquired = redlock.lock("free").into_future();
    poll_oddly(&mut acquired);
    let mut waiting = redlock.lock("k").wait(MS(100)).into_future();
    poll_oddly(&mut waiting);
    tokio::time::sleep(MS(1000)).await;
    drop((acquired, waiting, guard));
    assert_works(&redlock).await;

    // A lane that is connected again wakes this one.
    for node in &nodes {
        node.set_down(true);
    }
    redlock.try_lock("k").await.unwrap_err();
    settle().await;
    let mut ready = Box::pin(redlock.ready(MS(60_000)));
    poll_oddly(&mut ready);
    for node in &nodes {
        node.set_down(false);
    }
    tokio::time::sleep(MS(500)).await;
    redlock.ready(MS(5000)).await.unwrap();
    assert_works(&redlock).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_panics_for_a_while_ends_no_task_of_the_driver() {
    let panics = Arc::new(AtomicBool::new(false));
    let clock = {
        let (panics, zero) = (Arc::clone(&panics), tokio::time::Instant::now());
        Clock::custom(move || {
            assert!(!panics.load(SeqCst), "this clock panics on purpose");
            Timestamp::ZERO.saturating_add(zero.elapsed())
        })
    };
    let redlock = over(&three_nodes()).clock(clock).build().await.unwrap();
    let guard = redlock.lock("held").await.unwrap();
    let asked = tokio::spawn(redlock.lock("k").into_future());
    panics.store(true, SeqCst);
    tokio::time::sleep(MS(2000)).await;
    panics.store(false, SeqCst);
    drop(asked.await.unwrap());
    assert_works(&redlock).await;
    guard.extend().await.expect("it is still held");
}

/// A node whose code panics while it is told to.
#[derive(Clone)]
struct Fragile {
    inner: MemoryNode,
    panics: Arc<AtomicBool>,
}

impl Node for Fragile {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        assert!(!self.panics.load(SeqCst), "this node panics on purpose");
        let session = self.clone();
        async { Ok(Box::new(session) as Box<dyn Session>) }.boxed()
    }
}

impl Session for Fragile {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        assert!(!self.panics.load(SeqCst), "this session panics on purpose");
        self.inner.execute(batch)
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_whose_code_panics_are_connected_again() {
    let panics = Arc::new(AtomicBool::new(false));
    let node = || Fragile {
        inner: MemoryNode::new(),
        panics: Arc::clone(&panics),
    };
    let builder = Redlock::builder().custom_nodes([node(), node(), node()]);
    let redlock = builder.clock(Clock::tokio()).build().await.unwrap();
    panics.store(true, SeqCst);
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    tokio::time::sleep(MS(3000)).await;
    panics.store(false, SeqCst);
    // Each lane tries again within a second.
    tokio::time::sleep(MS(3000)).await;
    assert_works(&redlock).await;
}

/// Some lines are written in the middle of a change of a lock.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_changes_nothing_but_the_log() {
    let (log, _subscriber) = Log::with_level(Level::DEBUG);
    log.set_panics(true);
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let guard = redlock.lock("k").max_hold(MS(60_000)).await.unwrap();
    let waiting = tokio::spawn(redlock.lock("k").wait(MS(120_000)).into_future());
    for node in &nodes {
        node.set_down(true);
    }
    let lost = timeout(MS(60_000), guard.lost()).await;
    lost.expect("the holder is told of the loss");
    for node in &nodes {
        node.set_down(false);
    }
    drop(guard);
    drop(waiting.await.unwrap().expect("the next one has its turn"));
    // Each lane has connected again.
    tokio::time::sleep(MS(5000)).await;
    assert_works(&redlock).await;
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_panics_is_asked_again() {
    let (log, _subscriber) = Log::start();
    let council = Council::new(3);
    for (node, owner) in ["a", "b", "c"].into_iter().enumerate() {
        council.name(0..3, node, owner, 1);
    }
    council.set_panics(true);
    let builder = Redlock::builder().custom_nodes(council.seats(3));
    let redlock = builder.clock(Clock::tokio()).build().await.unwrap();
    for _ in 0..2 {
        council.set_panics(true);
        tokio::time::sleep(MS(20_000)).await;
        let error = redlock.ready(Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, NotReady::NoQuorum { .. }), "{error}");
        council.set_panics(false);
        tokio::time::sleep(MS(30_000)).await;
        assert_works(&redlock).await;
    }
    let text = log.text();
    assert!(log.count("ERROR") > 10, "{text}");
}
