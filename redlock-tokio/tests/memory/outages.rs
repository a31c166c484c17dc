//! Requests in a known outage that fail at once. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use redlock_tokio::{
    Answer, Clock, Command, LockError, LockOptions, MemoryNode, Node, NodeError, Redlock, Session,
};
use tokio::time::Instant;

use crate::support::{
    MS,
    in_memory::{over, settle, three_nodes},
};

fn fail_fast() -> LockOptions {
    LockOptions::new().fail_fast()
}

/// Returns how long it took to learn that there is no quorum.
async fn refused_after(redlock: &Redlock, options: LockOptions) -> Duration {
    let asked = Instant::now();
    let error = redlock.lock("k").options(options).await.unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    asked.elapsed()
}

fn set_down(nodes: &[MemoryNode], down: bool) {
    for node in &nodes[1..] {
        node.set_down(down);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_at_once_only_while_it_is_known_that_no_majority_can_vote() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let short = LockOptions::new().wait(MS(300));
    drop(redlock.lock("k").options(fail_fast()).await.unwrap());

    // One of three may fail.
    nodes[2].set_down(true);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(3000)).await;
    drop(redlock.lock("k").options(fail_fast()).await.unwrap());

    // Nobody knows of the outage before the first request.
    set_down(&nodes, true);
    assert!(refused_after(&redlock, fail_fast().or(short)).await >= MS(200));
    tokio::time::sleep(MS(1000)).await;
    assert_eq!(refused_after(&redlock, fail_fast()).await, Duration::ZERO);
    assert!(refused_after(&redlock, short).await >= MS(200));

    // The lanes try to connect once a second at least.
    set_down(&nodes, false);
    tokio::time::sleep(MS(1100)).await;
    drop(redlock.lock("k").options(fail_fast()).await.unwrap());
}

/// A node whose connections break while `cuts` is set. To open one takes 10 ms.
#[derive(Clone)]
struct Cut {
    inner: MemoryNode,
    cuts: Arc<AtomicBool>,
}

impl Node for Cut {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let session = self.clone();
        async {
            tokio::time::sleep(MS(10)).await;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }
}

impl Session for Cut {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        if self.cuts.load(SeqCst) {
            return async { Err(NodeError::Disconnected("cut".into())) }.boxed();
        }
        self.inner.execute(batch)
    }
}

/// All connections are lost at once, and opened again. The requests at that moment are not refused.
#[tokio::test(start_paused = true)]
async fn connections_that_were_just_lost_are_no_known_outage() {
    let cuts = Arc::new(AtomicBool::new(false));
    let node = || Cut {
        inner: MemoryNode::new(),
        cuts: Arc::clone(&cuts),
    };
    let builder = Redlock::builder().custom_nodes([node(), node(), node()]);
    let redlock = builder.clock(Clock::tokio()).build().await.unwrap();
    tokio::time::sleep(MS(5000)).await;
    cuts.store(true, SeqCst);
    let first = tokio::spawn(redlock.lock("a").options(fail_fast()).into_future());
    settle().await;
    cuts.store(false, SeqCst);
    assert!(redlock.ready(Duration::ZERO).await.is_err());
    let second = redlock.lock("b").options(fail_fast()).await;
    drop(second.expect("they are back soon"));
    drop(first.await.unwrap().expect("it tried again"));
}

/// Two hundred requests a second during an outage of three seconds, and how many wait at once.
#[tokio::test(start_paused = true)]
async fn requests_do_not_pile_up_in_a_known_outage() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    set_down(&nodes, true);
    redlock.try_lock("k").await.unwrap_err();
    tokio::time::sleep(MS(2000)).await;
    let mut most = Vec::new();
    for options in [LockOptions::new(), fail_fast()] {
        let waiting = Arc::new(());
        let mut tasks = Vec::new();
        let mut peak = 0;
        for number in 0..600 {
            let (place, redlock) = (Arc::clone(&waiting), redlock.clone());
            tasks.push(tokio::spawn(async move {
                let lock = redlock.lock(number.to_string()).options(options);
                assert!(lock.await.is_err());
                drop(place);
            }));
            tokio::time::sleep(MS(5)).await;
            peak = peak.max(Arc::strong_count(&waiting) - 1);
        }
        join_all(tasks).await;
        most.push(peak);
    }
    println!("most requests that waited at once, without and with fail_fast: {most:?}");
    assert!(most[0] >= 500 && most[1] == 0, "{most:?}");
}
