//! The log for operators: it has one line for each change, and none if all servers are as they should be.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{
    Clock, Durability, Lock, LockGuard, LossReason, MemoryNode, NodeError, NodeState, Redlock,
    RedlockBuilder, ReleaseOutcome, Role, ServerInfo,
    node::{Command, Node, Operation, RunId, Server, Session, Vote},
};
use tracing::Level;

use crate::support::{
    MS, built,
    in_memory::{self, three_nodes},
    log::Log,
    scripted::{Scripted, over_custom},
};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn nothing_is_logged_about_sound_servers() {
    let (log, _guard) = Log::start();
    let (_nodes, redlock) = sound_nodes().await;
    let guard = redlock.lock("k").await.unwrap();
    tokio::time::sleep(MS(30_000)).await;
    guard.release().await;
    redlock.shutdown(None).await;
    assert_eq!(log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_is_logged_when_it_fails_and_when_it_is_back() {
    let (log, _guard) = Log::start();
    let (nodes, redlock) = sound_nodes().await;
    nodes[0].inner.set_down(true);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "connection to the node is given up", 1);
    check_count(&log, "cannot connect", 1);
    nodes[0].inner.set_down(false);
    tokio::time::sleep(MS(10_000)).await;
    check_count(&log, "connected again", 1);
    let address = format!(" node={}", nodes[0].inner.address());
    check_count(&log, &address, 3);
    check_lines(&log, 3);
}

#[tokio::test(start_paused = true)]
async fn a_misconfigured_node_is_logged_once_for_each_reason() {
    let (log, _guard) = Log::start();
    let nodes = nodes(changed(|it| it.in_cluster = true));
    let _redlock = built(over(&nodes)).await;
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "has no vote until this is changed", 1);
    let master = "m:6379".into();
    nodes[0].describe(changed(|it| it.role = Role::ReplicaOf(master)));
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "has no vote until this is changed", 2);
    check_count(&log, "a replica of m:6379", 1);
}

#[tokio::test(start_paused = true)]
async fn flaws_that_do_not_cost_a_node_its_vote_are_logged() {
    type Flaw = (
        Server,
        fn(RedlockBuilder) -> RedlockBuilder,
        &'static [&'static str],
    );

    let withheld = Server::Withheld(NodeError::Refused {
        code: "NOPERM".into(),
        message: "no rights".into(),
    });
    let lacks_history = changed(|it| it.replication = None);
    let lacks_uptime = changed(|it| it.uptime = None);
    let evicts = changed(|it| it.eviction = Some("allkeys-lru".into()));
    let forgets = changed(|it| it.appends_to_file = false);
    let unvetted = RedlockBuilder::allow_unvetted_nodes;
    let fsync = |it: RedlockBuilder| it.durability(Durability::FsyncAlways);
    let usual = |it| it;
    let flaws: [Flaw; 7] = [
        (
            withheld,
            unvetted,
            &["does not answer INFO", "NOPERM no rights"],
        ),
        (
            lacks_history,
            unvetted,
            &["INFO lacks some fields", "master_replid2"],
        ),
        (lacks_uptime.clone(), usual, &["each new client waits"]),
        // It need not wait, and the others append to a file.
        (lacks_uptime, fsync, &[]),
        (evicts, usual, &["maxmemory-policy noeviction"]),
        (forgets.clone(), fsync, &["appendonly is off"]),
        (forgets, usual, &[]),
    ];
    for (server, configure, words) in flaws {
        let (log, _guard) = Log::start();
        let redlock = configure(over(&nodes(server))).build().await.unwrap();
        redlock.lock("k").await.unwrap().release().await;
        let log = log.text();
        assert!(words.iter().all(|it| log.contains(it)), "{words:?}: {log}");
        assert_eq!(log.is_empty(), words.is_empty(), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let nodes = nodes(changed(|it| it.uptime = Some(Duration::ZERO)));
    let redlock = built(over(&nodes)).await;
    tokio::time::sleep(MS(1000)).await;
    check_count(&log, "has no vote yet", 1);
    check_count(&log, " remaining=10.102 s", 1);
    check_count(&log, "votes from now on", 0);
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "votes from now on", 1);
    assert_eq!(redlock.nodes()[0].state, NodeState::Voting);

    nodes[0].describe(sound(b'x'));
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "replaced under its connection", 1);
    check_count(&log, "votes from now on", 2);
    check_lines(&log, 4);
    let named = format!(" node={}", nodes[0].inner.address());
    check_count(&log, &named, 4);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_expiry_is_logged_once_in_ten_seconds() {
    let (log, _guard) = Log::start();
    let (nodes, redlock) = sound_nodes().await;
    let guard = redlock.lock("k").await.unwrap();
    let short = "less time left than the lock relies on";
    let long = "more time left than it was given";
    extend(&nodes[0], &guard, MS(9_990)).await;
    assert_eq!(log.text(), "");
    for _ in 0..3 {
        extend(&nodes[0], &guard, MS(5)).await;
    }
    check_count(&log, short, 1);
    check_count(&log, long, 0);
    for _ in 0..3 {
        extend(&nodes[0], &guard, HOUR).await;
    }
    check_count(&log, short, 1);
    check_count(&log, long, 1);
    tokio::time::sleep(MS(10_000)).await;
    extend(&nodes[0], &guard, MS(5)).await;
    check_count(&log, short, 2);
    let text = log.text();
    let last = text.lines().rfind(|it| it.contains(short)).unwrap();
    assert!(last.contains("withheld=2"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let (nodes, redlock) = sound_nodes().await;
    nodes.iter().for_each(|it| it.inner.set_down(true));
    for _ in 0..10 {
        redlock.lock("k").wait(MS(500)).await.unwrap_err();
    }
    check_count(&log, "no lock can be acquired", 1);
    check_count(&log, "a lock was acquired, so the outage is over", 0);
    nodes.iter().for_each(|it| it.inner.set_down(false));
    for _ in 0..2 {
        let guard = redlock.lock("k").wait(MS(20_000)).await.unwrap();
        guard.release().await;
    }
    check_count(&log, "no lock can be acquired", 1);
    check_count(&log, "a lock was acquired, so the outage is over", 1);
}

/// Keys are logged only if the builder allows it.
#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_logged_with_its_reason_its_label_and_its_keys() {
    type Case = (
        fn(RedlockBuilder) -> RedlockBuilder,
        fn(&Redlock) -> Lock,
        [&'static str; 2],
    );
    let labelled = |it: &Redlock| it.lock("secret").label("orders");
    let usual = |it: &Redlock| it.lock("secret");
    let several = |it: &Redlock| it.lock_all(["b", "a"]);
    let odd = |it: &Redlock| it.lock("a\nWARN b");
    let logged = |it: RedlockBuilder| it.prefix("lock:").log_keys();
    let keys = "keys=[\"lock:a\", \"lock:b\"]";
    let cases: [Case; 6] = [
        (|it| it, labelled, ["label=\"orders\"", "secret"]),
        (|it| it.label("all"), usual, ["label=\"all\"", "keys="]),
        (|it| it, usual, ["", "label="]),
        (|it| it.prefix("lock:"), several, ["", "lock:a"]),
        (logged, several, [keys, "label="]),
        (logged, odd, [r"a\nWARN b", "label="]),
    ];
    for (configure, lock, [has, lacks]) in cases {
        let (log, _guard) = Log::start();
        let nodes = nodes(sound(b'a'));
        let redlock = configure(over(&nodes)).build().await.unwrap();
        let guard = lock(&redlock).await.unwrap();
        nodes.iter().for_each(|it| it.inner.clear());
        assert_eq!(guard.lost().await, LossReason::KeysLost);
        check_count(&log, "WARN redlock: a lock was lost", 1);
        check_count(&log, &LossReason::KeysLost.to_string(), 1);
        check_count(&log, &format!("token={}", guard.token()), 1);
        let text = log.text();
        let line = text.lines().find(|it| it.contains("a lock was lost"));
        let line = line.unwrap();
        assert!(line.contains(has) && !line.contains(lacks), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_holder_is_logged_with_its_label_and_token() {
    let (log, _guard) = Log::with_level(Level::DEBUG);
    let (nodes, redlock) = sound_nodes().await;
    let first = redlock.lock("secret").label("first").await.unwrap();
    let token = first.token();
    let second = tokio::spawn(redlock.lock("secret").label("second").into_future());
    tokio::task::yield_now().await;
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    let second = second.await.unwrap().unwrap();
    for label in ["first", "second"] {
        let line = format!("a lock was acquired label=\"{label}\" token={token}");
        check_count(&log, &line, 1);
    }
    nodes.iter().for_each(|it| it.inner.clear());
    second.lost().await;
    check_count(&log, "a lock was lost label=\"second\"", 1);
    check_count(&log, "a lock was lost label=\"first\"", 0);
    check_count(&log, "secret", 0);
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_logged_with_who_did_it_and_whose_lock_it_was() {
    let (log, _guard) = Log::start();
    let nodes = three_nodes();
    let labelled = |label| built(in_memory::over(&nodes).log_keys().client_name(label));
    let (web, bastion) = (labelled("web-3").await, labelled("bastion").await);
    let guard = web.lock("order:42").await.unwrap();
    let inspection = bastion.inspect("order:42").await.unwrap();
    bastion.force_unlock(&inspection).await;
    let line = format!(
        "a lock is released by force keys=[\"order:42\"] token={} holder=web-3 by=bastion",
        guard.token()
    );
    check_count(&log, &line, 1);
}

/// A node in memory. A test sets its description of itself.
struct Described {
    inner: MemoryNode,
    server: Arc<Mutex<Server>>,
    /// The time that keys had left, as the node claims in each answer to an extension.
    remaining: Arc<Mutex<Option<Duration>>>,
}

impl Described {
    fn new(server: Server) -> Self {
        Self {
            inner: MemoryNode::with_clock(Clock::tokio()),
            server: Arc::new(Mutex::new(server)),
            remaining: Arc::default(),
        }
    }

    fn describe(&self, server: Server) {
        *self.server.lock().unwrap() = server;
    }

    fn scripted(&self) -> Scripted {
        let (server, remaining) = (Arc::clone(&self.server), Arc::clone(&self.remaining));
        let scripted = Scripted::new(&self.inner, move |node, batch| {
            let is_extension = |it: &Command| matches!(it.operation(), Operation::Extend { .. });
            let are_extensions: Vec<_> = batch.iter().map(is_extension).collect();
            let claimed = *remaining.lock().unwrap();
            let answers = node.execute(batch);
            async move {
                let mut answers = answers.await?;
                for (answer, is_extension) in answers.iter_mut().zip(are_extensions) {
                    if let Some(remaining) = claimed.filter(|_| is_extension) {
                        *answer = Ok(Vote::Extended { remaining });
                    }
                }
                Ok(answers)
            }
            .boxed()
        });
        scripted.server(move || server.lock().unwrap().clone())
    }
}

/// Returns the description of a server that has been up for an hour and has the right settings.
fn sound(letter: u8) -> Server {
    sound_but(letter, |_| {})
}

/// Returns the description of the first server, with one change.
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

/// Creates three nodes. The first one describes itself like this.
fn nodes(first: Server) -> [Described; 3] {
    [first, sound(b'b'), sound(b'c')].map(Described::new)
}

fn over(nodes: &[Described; 3]) -> RedlockBuilder {
    over_custom(nodes.iter().map(Described::scripted))
}

async fn sound_nodes() -> ([Described; 3], Redlock) {
    let nodes = nodes(sound(b'a'));
    let redlock = built(over(&nodes)).await;
    (nodes, redlock)
}

#[track_caller]
fn check_count(log: &Log, text: &str, count: usize) {
    assert_eq!(log.count(text), count, "{text:?} in\n{}", log.text());
}

#[track_caller]
fn check_lines(log: &Log, count: usize) {
    let text = log.text();
    assert_eq!(text.lines().count(), count, "{text}");
}

/// Extends the lock. The node claims that its key had this much time left.
async fn extend(node: &Described, guard: &LockGuard, remaining: Duration) {
    *node.remaining.lock().unwrap() = Some(remaining);
    guard.extend().await.unwrap();
}
