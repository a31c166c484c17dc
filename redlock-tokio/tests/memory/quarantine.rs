//! Nodes that started recently and have no vote yet. In paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Clock, FencingToken, Key, LockError, MemoryNode, NodeError, NodeState, NotReady, Redlock,
    ReleaseOutcome, ServerInfo, Verdict,
    node::{Answer, Command, KeyState, Node, Operation, RunId, Server, Session, Vote},
};
use tokio::time::Instant;

use crate::support::{MS, in_memory::five_nodes_and_lock};

const COUNTER: u64 = FencingToken::MAX.get() - 10;

/// How long a node has no vote that starts at the time of the connection, with default settings.
const QUARANTINE: Duration = Duration::from_millis(10_102);

/// A node that started recently. It grants every lock, and has a fencing counter ahead of every clock.
#[derive(Clone)]
struct Young {
    name: String,
    letter: u8,
    /// Its uptime at the time of the connection.
    uptime: Duration,
    /// How many locks it was asked for.
    asked: Arc<AtomicUsize>,
}

impl Young {
    fn new(letter: u8) -> Self {
        Self {
            name: format!("node {}", char::from(letter)),
            letter,
            uptime: Duration::ZERO,
            asked: Arc::default(),
        }
    }
}

/// Connects to five nodes that have just started. Returns how often one of them was asked for a lock, too.
async fn fresh() -> (Redlock, Arc<AtomicUsize>) {
    let nodes: Vec<_> = (b'a'..=b'e').map(Young::new).collect();
    let asked = Arc::clone(&nodes[0].asked);
    (over(nodes).await, asked)
}

async fn over(nodes: Vec<Young>) -> Redlock {
    let builder = Redlock::builder().custom_nodes(nodes).clock(Clock::tokio());
    builder.build().await.unwrap()
}

impl Node for Young {
    fn address(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async { Ok(Box::new(self.clone()) as Box<dyn Session>) }.boxed()
    }
}

impl Session for Young {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let asks = |it: &&Command| matches!(it.operation(), Operation::Acquire { .. });
        self.asked
            .fetch_add(batch.iter().filter(asks).count(), SeqCst);
        let counter = FencingToken::new(COUNTER);
        let vote = |command: &Command| match command.operation() {
            Operation::Acquire {
                fence: Some(fence), ..
            }
            | Operation::Fence { fence, .. }
                if fence <= counter =>
            {
                Ok(Vote::Outbid { counter })
            }
            _ => Ok(Vote::Granted),
        };
        let answers = batch.iter().map(vote).collect();
        async move { Ok(answers) }.boxed()
    }

    fn server(&self) -> Server {
        let run_id = RunId::new([self.letter; RunId::LEN]);
        Server::Known(ServerInfo::new(run_id, self.uptime))
    }
}

/// A counter that outbids the proposal is no vote: neither during the quarantine nor afterwards on the same
/// connection.
#[tokio::test(start_paused = true)]
async fn fencing_tokens_do_not_go_back_when_a_quarantine_is_over() {
    let redlock = over((b'a'..=b'c').map(Young::new).collect()).await;
    let error = redlock
        .lock("k")
        .fenced()
        .wait(Duration::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        ),
        "{error}"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        redlock
            .nodes()
            .iter()
            .all(|it| it.state == NodeState::Voting)
    );
    let guard = redlock.lock("k").fenced().await.expect("they vote");
    let token = guard.fencing_token().expect("fenced").get();
    assert!(token > COUNTER, "{token} is not beyond {COUNTER}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_waits_for_the_end_of_a_quarantine_that_ends_within_its_wait() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    let guard = redlock.lock("k").wait(MS(15_000)).await.expect("in time");
    let waited = start.elapsed();
    assert!(
        waited >= QUARANTINE && waited < QUARANTINE + MS(30),
        "{waited:?}"
    );
    assert!(guard.is_valid());
    let asked = asked.load(SeqCst);
    assert!((10..=22).contains(&asked), "{asked} times in 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_lock_fails_after_its_wait_where_the_quarantine_is_longer() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    let error = redlock.lock("k").await.unwrap_err();
    assert_eq!(start.elapsed(), MS(5000), "the default wait");
    let asked = asked.load(SeqCst);
    assert!((5..=12).contains(&asked), "{asked} times in 5 s");
    let LockError::Quarantined { remaining, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*remaining, QUARANTINE - MS(5000));
    let text = error.to_string();
    assert!(text.contains("a majority votes in 6 s"), "{text}");
    assert!(text.contains("too recently to vote"), "{text}");
    for node in redlock.nodes() {
        assert!(text.contains(&*node.address), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_attempt_does_not_wait_for_the_end_of_a_quarantine() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    let error = redlock.try_lock("k").await.unwrap_err();
    assert!(matches!(error, LockError::Quarantined { .. }), "{error}");
    assert_eq!((start.elapsed(), asked.load(SeqCst)), (Duration::ZERO, 1));
}

/// The two nodes that restarted last do not matter, since a majority votes without them.
#[tokio::test(start_paused = true)]
async fn the_error_reports_the_time_until_a_majority_votes() {
    let uptimes = [9, 5, 3, 0, 0];
    let nodes = (b'a'..=b'e').map(Young::new).zip(uptimes);
    let nodes = nodes.map(|(node, uptime)| Young {
        uptime: Duration::from_secs(uptime),
        ..node
    });
    let redlock = over(nodes.collect()).await;
    let error = redlock.try_lock("k").await.unwrap_err();
    let LockError::Quarantined { remaining, .. } = &error else {
        panic!("{error}");
    };
    // The uptime is in whole seconds, so the three seconds of the third node may be little more than two.
    assert_eq!(*remaining, QUARANTINE - MS(2000));
    let start = Instant::now();
    let guard = redlock.lock("k").wait(MS(9000)).await;
    let waited = start.elapsed();
    assert!(
        guard.is_ok() && waited < QUARANTINE - MS(1000),
        "{waited:?}: {guard:?}"
    );
}

/// Also the waiters behind the first one learn why it does not get the lock.
#[tokio::test(start_paused = true)]
async fn every_waiter_for_a_key_learns_of_the_quarantine() {
    let (redlock, _) = fresh().await;
    let tasks = (0..3).map(|_| redlock.lock("k").into_future());
    for outcome in futures::future::join_all(tasks).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, LockError::Quarantined { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_as_soon_as_a_majority_may_vote() {
    let (redlock, asked) = fresh().await;
    let start = Instant::now();
    redlock.ready(MS(15_000)).await.expect("in time");
    let waited = start.elapsed();
    assert!(
        waited >= QUARANTINE && waited < QUARANTINE + MS(5),
        "{waited:?}"
    );
    assert_eq!(asked.load(SeqCst), 0, "no node is asked for a lock");
    drop(redlock.try_lock("k").await.expect("it is ready"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_reports_which_nodes_may_not_vote_and_why() {
    let (redlock, _) = fresh().await;
    for (limit, text) in [(0, "in 11 s"), (3000, "in 8 s")] {
        let start = Instant::now();
        let error = redlock.ready(MS(limit)).await.unwrap_err();
        assert_eq!(start.elapsed(), MS(limit));
        let NotReady::NoQuorum {
            remaining, nodes, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*remaining, Some(QUARANTINE - MS(limit)));
        assert_eq!(nodes.len(), 5);
        assert!(error.to_string().contains(text), "{error}");
    }
    redlock.shutdown().await;
    let error = redlock.ready(Duration::MAX).await.unwrap_err();
    assert_eq!(error, NotReady::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_when_the_nodes_that_were_down_are_up() {
    let nodes: Vec<_> = (0..3).map(|_| MemoryNode::new()).collect();
    for node in &nodes[1..] {
        node.set_down(true);
    }
    let builder = Redlock::builder().custom_nodes(nodes.clone());
    let redlock = builder.clock(Clock::tokio()).build().await.unwrap();
    let error = redlock.ready(MS(100)).await.unwrap_err();
    let NotReady::NoQuorum {
        remaining: None,
        nodes: down,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(down.len(), 2);
    let up = async {
        tokio::time::sleep(MS(5000)).await;
        nodes[2].set_down(false);
    };
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(redlock.ready(MS(9000)), up);
    outcome.expect("two of three");
    // A lane tries to connect at least once a second.
    assert!(start.elapsed() <= MS(6000), "{:?}", start.elapsed());
}

/// The error names a line for the builder, and that line mends the error.
#[tokio::test(start_paused = true)]
async fn the_error_of_too_long_a_ttl_names_the_line_that_mends_it() {
    let nodes = || (b'a'..=b'c').map(Young::new).collect::<Vec<_>>();
    let ttl = Duration::from_secs(30);
    let error = over(nodes()).await.lock("k").ttl(ttl).await.unwrap_err();
    let line = "`Redlock::builder().max_ttl(Duration::from_millis(30000))`";
    assert!(error.to_string().contains(line), "{error}");
    let builder = Redlock::builder().max_ttl(Duration::from_millis(30000));
    let builder = builder.custom_nodes(nodes()).clock(Clock::tokio());
    let lock = builder.build().await.unwrap().lock("k").ttl(ttl);
    drop(lock.wait(MS(60_000)).await.expect("when they may vote"));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_vote_objects_to_no_release() {
    let mut nodes: Vec<_> = (b'a'..=b'c').map(Young::new).collect();
    nodes[..2]
        .iter_mut()
        .for_each(|it| it.uptime = Duration::from_secs(3600));
    let redlock = over(nodes).await;
    let guard = redlock.lock("k").await.expect("two of three vote");
    let state = redlock.nodes().remove(2).state;
    assert!(matches!(state, NodeState::Quarantined { .. }), "{state}");
    let report = guard.release().await;
    assert_eq!(report.outcome, ReleaseOutcome::Released);
    assert!(report.nodes.is_empty(), "{report:?}");
}

/// A node whose server has just started, and which has something or has forgotten it.
struct Restarted {
    letter: u8,
    node: MemoryNode,
}

struct OfRestarted {
    server: ServerInfo,
    session: Box<dyn Session>,
}

impl Node for Restarted {
    fn address(&self) -> &str {
        self.node.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let run_id = RunId::new([self.letter; RunId::LEN]);
            let server = ServerInfo::new(run_id, Duration::ZERO);
            let session = self.node.connect().await?;
            Ok(Box::new(OfRestarted { server, session }) as Box<dyn Session>)
        }
        .boxed()
    }
}

impl Session for OfRestarted {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        self.session.execute(batch)
    }

    fn server(&self) -> Server {
        Server::Known(self.server.clone())
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        self.session.look_up(key)
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_that_a_lock_is_free_by_nodes_that_may_have_forgotten_it() {
    let (nodes, holder) = five_nodes_and_lock().await;
    let lock = holder.lock("k").await.unwrap();
    let permit = holder.semaphore("s", 1).acquire().await.unwrap();
    for node in &nodes[..3] {
        node.clear();
    }
    let restarted = nodes[..3].iter().zip(b'a'..);
    let restarted = restarted.map(|(node, letter)| Restarted {
        letter,
        node: node.clone(),
    });
    let builder = Redlock::builder().custom_nodes(restarted);
    let builder = builder
        .custom_nodes(nodes[3..].to_vec())
        .clock(Clock::tokio());
    let onlooker = builder.build().await.unwrap();
    assert!(lock.is_valid() && permit.is_valid());
    for key in ["k", "s", "another"] {
        let inspection = onlooker.inspect(key).await.unwrap();
        assert_eq!(inspection.verdict(), Verdict::Unknown, "{inspection}");
        let shown = inspection.to_string();
        assert!(shown.contains("nothing; has no vote: came up"), "{shown}");
    }
    let inspection = onlooker.inspect("s").await.unwrap();
    let permits: Vec<_> = inspection.permits().into_values().collect();
    assert_eq!(permits, [Verdict::Unknown], "{inspection}");
    let candidate = onlooker.elect("k").candidate();
    assert_eq!(candidate.leader().await, Ok(Verdict::Unknown));
    tokio::time::sleep(QUARANTINE).await;
    for key in ["k", "s"] {
        let inspection = onlooker.inspect(key).await.unwrap();
        assert_eq!(inspection.verdict(), Verdict::Free, "{inspection}");
    }
}
