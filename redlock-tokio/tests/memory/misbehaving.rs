//! Nodes that answer late, never, or with a refusal, and connections that break. A lane recovers from each of
//! them, and neither spins nor grows meanwhile.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_tokio::{
    Answer, Clock, Command, ExtendError, LockOptions, LossReason, MemoryNode, Node, NodeError,
    NodeState, Operation, Redlock, ReleaseOutcome, Session,
};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    self, MS,
    in_memory::{over, three_nodes},
};

/// How a node treats its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Obeys,
    /// Breaks the connection at each command.
    HangsUp,
    /// Answers releases with an error.
    RefusesReleases,
    /// Answers after this time.
    Dawdles(Duration),
    /// Keeps the commands, and does not answer.
    Swallows,
}

/// A node in memory whose manner a test can change.
#[derive(Clone)]
struct Odd {
    inner: MemoryNode,
    manner: Arc<Mutex<Manner>>,
    swallowed: Arc<Mutex<Vec<Command>>>,
    connections: Arc<AtomicUsize>,
    batches: Arc<AtomicUsize>,
    releases: Arc<AtomicUsize>,
}

impl Odd {
    fn new(manner: Manner, clock: Clock) -> Self {
        Self {
            inner: MemoryNode::with_clock(clock),
            manner: Arc::new(Mutex::new(manner)),
            swallowed: Arc::default(),
            connections: Arc::default(),
            batches: Arc::default(),
            releases: Arc::default(),
        }
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// Carries out the swallowed commands, like a stopped server that goes on with its buffer.
    fn digest(&self) -> usize {
        let commands: Vec<_> = self.swallowed.lock().unwrap().drain(..).collect();
        drop(self.inner.clone().execute(&commands));
        commands.len()
    }
}

impl Node for Odd {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.connections.fetch_add(1, SeqCst);
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Session>) })
    }
}

impl Session for Odd {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let is_release =
            |command: &&Command| matches!(command.operation(), Operation::Release { .. });
        self.batches.fetch_add(1, SeqCst);
        let releases = batch.iter().filter(is_release).count();
        self.releases.fetch_add(releases, SeqCst);
        let manner = *self.manner.lock().unwrap();
        match manner {
            Manner::Obeys => self.inner.execute(batch),
            Manner::HangsUp => {
                let error = NodeError::Disconnected("hung up".into());
                Box::pin(async { Err(error) })
            }
            Manner::RefusesReleases => {
                let refusal = NodeError::Refused {
                    code: "NOPERM".into(),
                    message: "no releases".into(),
                };
                let refused: Vec<_> = batch.iter().map(|it| is_release(&it)).collect();
                let answers = self.inner.execute(batch);
                Box::pin(async move {
                    let mut answers = answers.await?;
                    for (answer, refused) in answers.iter_mut().zip(refused) {
                        if refused {
                            *answer = Err(refusal.clone());
                        }
                    }
                    Ok(answers)
                })
            }
            Manner::Dawdles(delay) => {
                let answers = self.inner.execute(batch);
                Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    answers.await
                })
            }
            Manner::Swallows => {
                self.swallowed.lock().unwrap().extend_from_slice(batch);
                Box::pin(pending())
            }
        }
    }
}

/// Connects to two nodes that obey and one with this manner.
async fn with_one(manner: Manner, clock: Clock) -> (Odd, Redlock) {
    let nodes = [Manner::Obeys, Manner::Obeys, manner].map(|it| Odd::new(it, clock.clone()));
    let odd = nodes[2].clone();
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    (odd, builder.build().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_closes_every_connection_is_asked_rarely() {
    let (odd, redlock) = with_one(Manner::HangsUp, Clock::tokio()).await;
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(9000)).await;
    let connections = odd.connections.load(SeqCst);
    assert!((2..30).contains(&connections), "{connections} in 9 s");
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(2000)).await;
    let before = odd.connections.load(SeqCst);
    for _ in 0..10 {
        drop(redlock.lock("k").await.unwrap());
        tokio::time::sleep(MS(500)).await;
    }
    assert_eq!(odd.connections.load(SeqCst), before, "it has recovered");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_back_for_a_while_is_soon_connected_again() {
    let nodes = three_nodes();
    let redlock = over(&nodes).build().await.unwrap();
    let fail_for = async |time| {
        nodes[0].set_down(true);
        drop(redlock.lock("k").await.unwrap());
        tokio::time::sleep(time).await;
        nodes[0].set_down(false);
    };
    let votes = || redlock.nodes()[0].state == NodeState::Voting;
    fail_for(MS(60_000)).await;
    tokio::time::sleep(MS(5000)).await;
    assert!(votes());
    fail_for(MS(5)).await;
    assert!(!votes());
    tokio::time::sleep(MS(100)).await;
    assert!(votes());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_releases_is_asked_rarely() {
    const LOCKS: usize = 3000;
    let (odd, redlock) = with_one(Manner::RefusesReleases, Clock::tokio()).await;
    for number in 0..LOCKS {
        drop(redlock.lock(format!("k{number}")).await.unwrap());
    }
    tokio::time::sleep(MS(1)).await;
    let before = odd.releases.load(SeqCst);
    assert!(before >= LOCKS);
    tokio::time::sleep(MS(2000)).await;
    let again = odd.releases.load(SeqCst) - before;
    // A batch of 512, every quarter of a second.
    assert!((512..=9 * 512).contains(&again), "{again} in 2 s");
    odd.inner.clear();
    odd.set(Manner::Obeys);
    redlock.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_reports_its_own_objections_and_not_those_of_an_extension() {
    let (odd, redlock) = with_one(Manner::Obeys, Clock::tokio()).await;
    for (manner, objections) in [(Manner::Obeys, 0), (Manner::RefusesReleases, 1)] {
        let guard = redlock.lock("k").await.unwrap();
        // Longer than node_timeout, so the node objects to the extension.
        odd.set(Manner::Dawdles(MS(60)));
        guard.extend().await.unwrap();
        tokio::time::sleep(MS(100)).await;
        odd.set(manner);
        let report = guard.release().await;
        assert_eq!(report.outcome, ReleaseOutcome::Released);
        assert_eq!(report.nodes.len(), objections, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_owed_to_a_node_that_was_never_asked() {
    let nodes: Vec<_> = (0..3).map(|_| MemoryNode::new()).collect();
    nodes[0].set_down(true);
    let builder = Redlock::builder().custom_nodes(nodes).clock(Clock::tokio());
    let redlock = builder.build().await.unwrap();
    for _ in 0..100 {
        drop(redlock.lock("k").await.unwrap());
    }
    let before = Instant::now();
    assert_eq!(redlock.shutdown().await.abandoned, 0);
    assert!(before.elapsed() < MS(100), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_the_releases_that_a_node_has_not_confirmed() {
    for (manner, pause) in [
        (Manner::Swallows, MS(0)),          // in flight
        (Manner::Swallows, MS(2000)),       // in flight again, on the second connection
        (Manner::RefusesReleases, MS(100)), // owed
    ] {
        let (odd, redlock) = with_one(Manner::Obeys, Clock::tokio()).await;
        let guard = redlock.lock("k").await.unwrap();
        odd.set(manner);
        drop(guard);
        tokio::time::sleep(pause).await;
        let report = redlock.shutdown_within(MS(1)).await;
        assert_eq!((report.abandoned, report.timed_out), (1, true));
        odd.set(Manner::Obeys);
        let report = redlock.shutdown().await;
        assert_eq!((report.abandoned, report.timed_out), (0, false));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owed_release_is_delivered_at_once_to_a_node_that_is_back_or_abandoned_in_the_end() {
    for (down_for, abandoned) in [(MS(5), 0), (MS(400), 1)] {
        let nodes = three_nodes();
        let redlock = over(&nodes).build().await.unwrap();
        let guard = redlock.lock("k").ttl(MS(300)).await.unwrap();
        nodes[0].set_down(true);
        drop(guard);
        tokio::time::sleep(down_for).await;
        nodes[0].set_down(false);
        // Without the new connection, the next try would come a quarter of a second after the last one.
        tokio::time::sleep(MS(100)).await;
        assert!(nodes[0].is_empty());
        let report = redlock.shutdown().await;
        assert_eq!((report.abandoned, report.timed_out), (abandoned, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_release_is_released_once_more() {
    let (odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    let guard = redlock.lock("k").await.unwrap();
    tokio::time::sleep(MS(100)).await;
    drop(guard);
    // The lane gives up the silent connection and delivers the release on the next one.
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(3000)).await;
    assert!(odd.releases.load(SeqCst) > 1 && odd.inner.is_empty());
    assert!(odd.digest() > 0);
    assert!(odd.inner.contains("k"), "the late request has set its key");
    tokio::time::sleep(MS(500)).await;
    assert!(odd.inner.is_empty());
    tokio::time::sleep(MS(8000)).await;
    let before = odd.releases.load(SeqCst);
    tokio::time::sleep(MS(5000)).await;
    assert_eq!(
        odd.releases.load(SeqCst),
        before,
        "no more releases are sent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_one_timeout_and_then_nothing() {
    let (odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    // The other two nodes decide, so not even the first request waits.
    for number in 0..20 {
        let before = Instant::now();
        let guard = redlock.lock(format!("k{number}")).await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(guard);
        tokio::time::sleep(MS(20)).await;
    }
    // The swallowed requests set their keys late, and those are released once the node is back.
    odd.set(Manner::Obeys);
    odd.digest();
    tokio::time::sleep(MS(3000)).await;
    assert!(odd.inner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_node_shows_its_round_trip_and_its_silence() {
    let (odd, redlock) = with_one(Manner::Dawdles(MS(20)), Clock::tokio()).await;
    let status = || redlock.nodes().remove(2);
    assert_eq!(status().round_trip, None);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(100)).await;
    assert_eq!(status().round_trip, Some(MS(20)));
    odd.set(Manner::Swallows);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(100)).await;
    assert_eq!(status().state, NodeState::Silent);
    odd.set(Manner::Obeys);
    tokio::time::sleep(MS(3000)).await;
    assert_eq!(status().state, NodeState::Voting);
    assert!(status().round_trip.unwrap() < MS(20));
}

#[tokio::test(start_paused = true)]
async fn at_most_eight_batches_are_in_flight_to_a_node() {
    let (odd, redlock) = with_one(Manner::Swallows, Clock::tokio()).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(redlock.lock(format!("k{number}")).await.unwrap());
        tokio::time::sleep(MS(1)).await;
    }
    assert_eq!(odd.batches.load(SeqCst), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_pile_up_at_a_slow_node() {
    let dawdles = Manner::Dawdles(MS(45));
    let (_odd, redlock) = with_one(dawdles, Clock::system()).await;
    let until = Instant::now() + MS(1500);
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let redlock = redlock.clone();
        tasks.spawn(async move {
            let mut cycles = 0;
            while Instant::now() < until {
                drop(redlock.lock(format!("k{task}")).await.unwrap());
                cycles += 1;
            }
            cycles
        });
    }
    let cycles: usize = tasks.join_all().await.into_iter().sum();
    assert!(cycles > 1000, "{cycles} cycles");
    // The lane's queue is bounded, to a second of work at this pace. Owed releases come on top.
    let drained = tokio::time::timeout(Duration::from_secs(12), redlock.shutdown()).await;
    assert!(
        drained.is_ok(),
        "it ends with the ttl of 10 s at the latest"
    );
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_too_late_are_not_counted() {
    let clock = Clock::tokio();
    let manners = [
        Manner::Obeys,
        Manner::Dawdles(MS(60)),
        Manner::Dawdles(MS(60)),
    ];
    let nodes = manners.map(|it| Odd::new(it, clock.clone()));
    let kept = nodes.clone();
    let builder = Redlock::builder().custom_nodes(nodes).clock(clock);
    let redlock = builder.build().await.unwrap();
    let error = redlock.try_lock("k").await.unwrap_err().to_string();
    assert!(error.contains("no quorum"), "{error}");
    assert!(error.contains("no answer within 50ms"), "{error}");
    kept.iter().for_each(|it| it.set(Manner::Obeys));
    tokio::time::sleep(MS(1000)).await;
    assert!(
        kept.iter().all(|it| it.inner.is_empty()),
        "released where it was set late"
    );
    assert!(redlock.try_lock("k").await.is_ok());
}

#[tokio::test]
async fn a_dropped_service_leaves_nothing_behind() {
    let marker = Arc::new(AtomicUsize::new(0));
    let options = LockOptions::new().ttl(MS(300));
    for how in 0..3 {
        let mut node = Odd::new(Manner::Obeys, Clock::system());
        node.connections = Arc::clone(&marker);
        let builder = Redlock::builder().custom_nodes([node]).options(options);
        let redlock = builder.build().await.unwrap();
        let guard = redlock.lock("k").await.unwrap();
        match how {
            0 => drop((redlock, guard)),
            1 => drop((guard, redlock)),
            _ => {
                drop(redlock);
                guard.release().await;
            }
        }
    }
    support::eventually("lanes and timers have ended", || {
        Arc::strong_count(&marker) == 1
    })
    .await;
}

#[test]
fn a_service_whose_runtime_ends_first_leaves_nothing_behind() {
    let marker = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut node = Odd::new(Manner::Swallows, Clock::system());
        node.connections = Arc::clone(&marker);
        let builder = Redlock::builder().custom_nodes([node]);
        let redlock = runtime.block_on(builder.build()).unwrap();
        runtime.block_on(async {
            let waiting = redlock.lock("k").into_future();
            assert!(tokio::time::timeout(MS(5), waiting).await.is_err());
        });
        drop(runtime);
    }
    assert_eq!(Arc::strong_count(&marker), 1);
}

#[test]
fn releases_that_the_end_of_the_runtime_prevents_are_counted() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    for is_dropped_before in [true, false] {
        let first = runtime();
        let (redlock, guard) = first.block_on(async {
            let nodes = three_nodes();
            // Nothing is sent to this one, so it needs no release.
            nodes[0].set_down(true);
            let builder = Redlock::builder().custom_nodes(nodes);
            let redlock = builder.build().await.unwrap();
            let guard = redlock.lock("k").await.unwrap();
            (redlock, guard)
        });
        let second = runtime();
        if is_dropped_before {
            // The lanes do not run any more, so nothing is sent.
            drop(guard);
            drop(first);
        } else {
            drop(first);
            let error = second.block_on(guard.extend()).unwrap_err();
            assert_eq!(error, ExtendError::Lost(LossReason::Abandoned));
            // The end of the runtime has released the lock, so the guard has nothing to release.
            drop(guard);
        }
        let report = second.block_on(redlock.shutdown());
        assert_eq!(report.abandoned, 2);
    }
}
