//! Code of the user that panics in the tasks of the driver. In paused time.

use std::{
    future::pending,
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::Tenure;
use redlock_tokio::{
    NodeError, NodeState, Redlock,
    events::Event,
    node::{Authority, Reports, Session},
};
use tokio::time::timeout;
use tracing::Level;

use crate::support::{
    MS, built,
    gullible::Seat,
    in_memory::{fleet, over, set_down, settle, three_nodes},
    log::Log,
    scripted::{Scripted, over_custom},
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
    let (nodes, [redlock]) = fleet().await;
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
    set_down(&nodes, true);
    redlock.try_lock("k").await.unwrap_err();
    settle().await;
    let mut ready = Box::pin(redlock.ready(MS(60_000)));
    poll_oddly(&mut ready);
    set_down(&nodes, false);
    tokio::time::sleep(MS(500)).await;
    redlock.ready(MS(5000)).await.unwrap();
    assert_works(&redlock).await;
}

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("the value of a panic panics on purpose when it is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_whose_panic_panics_again_is_told_of_what_follows() {
    let told = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&told);
    let odd = move |event: &Event| {
        if let Event::Lock(_) = event
            && counter.fetch_add(1, SeqCst) == 2
        {
            panic_any(PanicsAgain);
        }
    };
    let redlock = built(over(&three_nodes()).observer(odd)).await;
    // `Requested`, `Attempted`, `Acquired`, `Released`.
    let _ = tokio::spawn(redlock.lock("k").into_future()).await;
    assert_works(&redlock).await;
    assert!(told.load(SeqCst) >= 8, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_whose_code_panics_are_connected_again() {
    let panics = Arc::new(AtomicBool::new(false));
    let nodes = three_nodes().into_iter().map(|node| {
        let [opens, executes] = [(); 2].map(|()| Arc::clone(&panics));
        let node = Scripted::new(&node, move |node, batch| {
            assert!(!executes.load(SeqCst), "this session panics on purpose");
            node.execute(batch)
        });
        node.connect(move || {
            assert!(!opens.load(SeqCst), "this node panics on purpose");
            ready(Ok(())).boxed()
        })
    });
    let redlock = built(over_custom(nodes)).await;
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
    let (nodes, [redlock]) = fleet().await;
    let guard = redlock.lock("k").max_hold(MS(60_000)).await.unwrap();
    let waiting = tokio::spawn(redlock.lock("k").wait(MS(120_000)).into_future());
    set_down(&nodes, true);
    let lost = timeout(MS(60_000), guard.lost()).await;
    lost.expect("the holder is told of the loss");
    set_down(&nodes, false);
    drop(guard);
    drop(waiting.await.unwrap().expect("the next one has its turn"));
    // Each lane has connected again.
    tokio::time::sleep(MS(5000)).await;
    assert_works(&redlock).await;
}

/// An authority that panics the first three times.
#[derive(Default)]
struct Oracle(AtomicUsize);

impl Authority for Oracle {
    fn watch(&self, _: Reports) -> BoxFuture<'static, ()> {
        let asked = self.0.fetch_add(1, SeqCst);
        assert!(asked >= 3, "this authority panics on purpose");
        pending().boxed()
    }

    fn connect(&self, _: usize, _: &Tenure) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_panics_is_asked_again() {
    let oracle = Arc::new(Oracle::default());
    let seat = Seat {
        address: "seat".to_owned(),
        authority: Arc::<Oracle>::clone(&oracle),
    };
    let _redlock = built(over_custom([seat]).connect_timeout(MS(100))).await;
    tokio::time::sleep(MS(10_000)).await;
    assert_eq!(oracle.0.load(SeqCst), 4);
}
