//! What the log tells those who run the servers: each change once, and nothing of servers that are as they should be.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Answer, Clock, Command, LockGuard, LossReason, MemoryNode, Node, NodeError, NodeState,
    Operation, Redlock, RedlockBuilder, Role, RunId, Server, ServerInfo, Session, Vote,
};

use crate::support::{MS, log::Log};

const HOUR: Duration = Duration::from_secs(3600);

/// A node in memory that says of itself what a test wants.
#[derive(Clone)]
struct Spoken {
    inner: MemoryNode,
    says: Arc<Mutex<Server>>,
    /// How long the keys had left, as it answers to extensions.
    remaining: Arc<Mutex<Option<Duration>>>,
}

impl Spoken {
    fn new(server: Server) -> Self {
        Self {
            inner: MemoryNode::with_clock(Clock::tokio()),
            says: Arc::new(Mutex::new(server)),
            remaining: Arc::default(),
        }
    }

    fn say(&self, server: Server) {
        *self.says.lock().unwrap() = server;
    }

    fn claim_remaining(&self, remaining: Duration) {
        *self.remaining.lock().unwrap() = Some(remaining);
    }
}

impl Node for Spoken {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let inner = self.inner.connect().await?;
            let (says, remaining) = (self.says.clone(), self.remaining.clone());
            Ok(Box::new(SpokenSession {
                inner,
                says,
                remaining,
            }) as Box<dyn Session>)
        }
        .boxed()
    }
}

struct SpokenSession {
    inner: Box<dyn Session>,
    says: Arc<Mutex<Server>>,
    remaining: Arc<Mutex<Option<Duration>>>,
}

impl Session for SpokenSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let extends = |it: &Command| matches!(it.operation(), Operation::Extend { .. });
        let extensions: Vec<_> = batch.iter().map(extends).collect();
        let (answers, remaining) = (self.inner.execute(batch), *self.remaining.lock().unwrap());
        async move {
            let mut answers = answers.await?;
            for (answer, extends) in answers.iter_mut().zip(extensions) {
                if let Some(remaining) = remaining.filter(|_| extends) {
                    *answer = Ok(Vote::Extended { remaining });
                }
            }
            Ok(answers)
        }
        .boxed()
    }

    fn server(&self) -> Server {
        self.says.lock().unwrap().clone()
    }
}

/// What a server says of itself that has been up for an hour, and whose settings are as they should be.
fn sound(letter: u8) -> Server {
    sound_but(letter, |_| {})
}

/// What the first server says of itself, which is sound but for this.
fn changed(change: impl FnOnce(&mut ServerInfo)) -> Server {
    sound_but(b'a', change)
}

fn sound_but(letter: u8, change: impl FnOnce(&mut ServerInfo)) -> Server {
    let mut info = ServerInfo::new(RunId::new([letter; RunId::LEN]), HOUR);
    info.eviction = Some("noeviction".into());
    info.appends_to_file = true;
    change(&mut info);
    Server::Known(info)
}

/// Three nodes; the first one says this of itself.
fn nodes(first: Server) -> [Spoken; 3] {
    let others = [b'b', b'c'].map(sound);
    let [second, third] = others.map(Spoken::new);
    [Spoken::new(first), second, third]
}

fn over(nodes: &[Spoken; 3]) -> RedlockBuilder {
    Redlock::builder()
        .custom_nodes(nodes.clone())
        .clock(Clock::tokio())
}

/// Returns what is logged of a first node that says this of itself.
async fn log_of(first: Server, build: impl FnOnce(RedlockBuilder) -> RedlockBuilder) -> String {
    let (log, _guard) = Log::start();
    let redlock = build(over(&nodes(first))).build().await.unwrap();
    redlock.lock("k").await.unwrap().release().await;
    log.text()
}

#[track_caller]
fn log_has(log: &Log, text: &str, times: usize) {
    let log = log.text();
    assert_eq!(log.matches(text).count(), times, "{text:?} in\n{log}");
}

/// Extends a lock of which a node says that its key had so much time left.
async fn extend(node: &Spoken, guard: &LockGuard, remaining: Duration) {
    node.claim_remaining(remaining);
    guard.extend().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_logged_of_sound_servers() {
    let (log, _guard) = Log::start();
    let redlock = over(&nodes(sound(b'a'))).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    tokio::time::sleep(MS(30_000)).await;
    guard.release().await;
    redlock.shutdown().await;
    assert_eq!(log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_node_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let nodes = nodes(sound(b'a'));
    let redlock = over(&nodes).build().await.unwrap();
    nodes[0].inner.set_down(true);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(60_000)).await;
    log_has(&log, "connection given up", 1);
    log_has(&log, "cannot connect", 1);
    let address = format!("node=\"{}\"", nodes[0].address());
    log_has(&log, &address, 2);
    nodes[0].inner.set_down(false);
    tokio::time::sleep(MS(10_000)).await;
    log_has(&log, "connected again", 1);
    assert_eq!(log.text().lines().count(), 3, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_needs_a_change_is_logged_once_for_each_reason() {
    let (log, _guard) = Log::start();
    let nodes = nodes(changed(|it| it.in_cluster = true));
    let redlock = over(&nodes).build().await.unwrap();
    tokio::time::sleep(MS(60_000)).await;
    log_has(&log, "has no vote until this is changed", 1);
    let master = "m:6379".into();
    nodes[0].say(changed(|it| it.role = Role::ReplicaOf(master)));
    tokio::time::sleep(MS(60_000)).await;
    log_has(&log, "has no vote until this is changed", 2);
    log_has(&log, "a replica of m:6379", 1);
    drop(redlock);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_keep_a_node_from_voting_is_logged() {
    let withheld = || {
        Server::Withheld(NodeError::Refused {
            code: "NOPERM".into(),
            message: "no rights".into(),
        })
    };
    let log = log_of(withheld(), RedlockBuilder::allow_unvetted_nodes).await;
    assert!(
        log.contains("NOPERM no rights") && log.contains("it does not answer INFO"),
        "{log}"
    );
    let lacks_history = changed(|it| it.replication = None);
    let log = log_of(lacks_history, RedlockBuilder::allow_unvetted_nodes).await;
    assert!(
        log.contains("INFO lacks some fields") && log.contains("master_replid2"),
        "{log}"
    );

    let lacks_uptime = || changed(|it| it.uptime = None);
    let waits = "each new client waits";
    let log = log_of(lacks_uptime(), |it| it).await;
    assert!(log.contains(waits) && !log.contains("some fields"), "{log}");
    let log = log_of(lacks_uptime(), RedlockBuilder::nodes_are_durable).await;
    assert!(!log.contains(waits), "{log}");

    let log = log_of(
        changed(|it| it.eviction = Some("allkeys-lru".into())),
        |it| it,
    )
    .await;
    assert!(log.contains("maxmemory-policy noeviction"), "{log}");
    let forgets = || changed(|it| it.appends_to_file = false);
    let log = log_of(forgets(), RedlockBuilder::nodes_are_durable).await;
    assert!(log.contains("appendonly is off"), "{log}");
    assert_eq!(log_of(forgets(), |it| it).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let nodes = nodes(changed(|it| it.uptime = Some(Duration::ZERO)));
    let redlock = over(&nodes).build().await.unwrap();
    tokio::time::sleep(MS(1000)).await;
    log_has(&log, "has no vote yet", 1);
    log_has(&log, "votes from now on", 0);
    tokio::time::sleep(MS(60_000)).await;
    log_has(&log, "votes from now on", 1);
    assert_eq!(redlock.nodes()[0].state, NodeState::Voting);

    nodes[0].say(sound(b'x'));
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(60_000)).await;
    log_has(&log, "replaced under its connection", 1);
    log_has(&log, "votes from now on", 2);
    assert_eq!(log.text().lines().count(), 4, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_wrong_expiry_is_logged_once_for_many() {
    let (log, _guard) = Log::start();
    let nodes = nodes(sound(b'a'));
    let redlock = over(&nodes).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    let (short, long) = (
        "less time left than the lock relies on",
        "more time left than it was given",
    );
    extend(&nodes[0], &guard, MS(9_990)).await;
    assert_eq!(log.text(), "");
    for _ in 0..3 {
        extend(&nodes[0], &guard, MS(5)).await;
    }
    log_has(&log, short, 1);
    log_has(&log, long, 0);
    for _ in 0..3 {
        extend(&nodes[0], &guard, HOUR).await;
    }
    log_has(&log, short, 1);
    log_has(&log, long, 1);
    tokio::time::sleep(MS(10_000)).await;
    extend(&nodes[0], &guard, MS(5)).await;
    log_has(&log, short, 2);
    assert!(log.text().contains("withheld=2"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_no_lock_can_be_acquired_is_logged() {
    let (log, _guard) = Log::start();
    let nodes = nodes(sound(b'a'));
    let redlock = over(&nodes).build().await.unwrap();
    nodes.iter().for_each(|it| it.inner.set_down(true));
    for _ in 0..10 {
        redlock.lock("k").wait(MS(500)).await.unwrap_err();
    }
    let (begins, ends) = ("no lock can be acquired", "locks can be acquired again");
    log_has(&log, begins, 1);
    log_has(&log, ends, 0);
    nodes.iter().for_each(|it| it.inner.set_down(false));
    for _ in 0..2 {
        redlock
            .lock("k")
            .wait(MS(20_000))
            .await
            .unwrap()
            .release()
            .await;
    }
    log_has(&log, begins, 1);
    log_has(&log, ends, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_logged_with_the_reason() {
    let (log, _guard) = Log::start();
    let nodes = nodes(sound(b'a'));
    let redlock = over(&nodes).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    nodes.iter().for_each(|it| it.inner.clear());
    assert_eq!(guard.lost().await, LossReason::KeysLost);
    log_has(&log, "lock lost", 1);
    log_has(&log, &LossReason::KeysLost.to_string(), 1);
}
