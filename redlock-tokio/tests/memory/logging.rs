//! The log for operators: it has one line for each change, and none if all servers are as they should be.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::ready};
use redlock_tokio::{
    Durability, Lock, LossReason, MemoryNode, NodeError, NodeState, Redlock, RedlockBuilder,
    ReleaseOutcome, Role, ServerInfo,
    node::{Command, Node, Operation, RunId, Server, Vote},
};
use tracing::Level;

use crate::support::{
    MS, built,
    in_memory::{over, set_down, three_nodes},
    log::Log,
    scripted::{Scripted, over_custom},
};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn nothing_is_logged_about_sound_servers() {
    let (log, _guard) = Log::start();
    let (_, redlock) = sound_nodes().await;
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
    nodes.memory[0].set_down(true);
    drop(redlock.lock("k").await.unwrap());
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "connection to the node is given up", 1);
    check_count(&log, "cannot connect", 1);
    nodes.memory[0].set_down(false);
    tokio::time::sleep(MS(10_000)).await;
    check_count(&log, "connected again", 1);
    let address = format!(" node={}", nodes.memory[0].address());
    check_count(&log, &address, 3);
    check_lines(&log, 3);
}

#[tokio::test(start_paused = true)]
async fn a_misconfigured_node_is_logged_once_for_each_reason() {
    let (log, _guard) = Log::start();
    let nodes = Nodes::new(changed(|it| it.in_cluster = true));
    let _redlock = built(nodes.builder()).await;
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "has no vote until this is changed", 1);
    let master = "m:6379".into();
    nodes.describe_first(changed(|it| it.role = Role::ReplicaOf(master)));
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
    let forgets = changed(|it| it.appends_to_file = false);
    let unvetted = RedlockBuilder::allow_unvetted_nodes;
    let fsync = |it: RedlockBuilder| it.durability(Durability::FsyncAlways);
    let usual = |it| it;
    let flaws: [Flaw; 5] = [
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
        (forgets, usual, &[]),
    ];
    for (server, configure, words) in flaws {
        let (log, _guard) = Log::start();
        let redlock = built(configure(Nodes::new(server).builder())).await;
        redlock.lock("k").await.unwrap().release().await;
        let log = log.text();
        assert!(words.iter().all(|it| log.contains(it)), "{words:?}: {log}");
        assert_eq!(log.is_empty(), words.is_empty(), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let nodes = Nodes::new(changed(|it| it.uptime = Some(Duration::ZERO)));
    let redlock = built(nodes.builder()).await;
    tokio::time::sleep(MS(1000)).await;
    check_count(&log, "has no vote yet", 1);
    check_count(&log, " remaining=10.102 s", 1);
    check_count(&log, "votes from now on", 0);
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "votes from now on", 1);
    assert_eq!(redlock.nodes()[0].state, NodeState::Voting);

    nodes.describe_first(sound(b'x'));
    tokio::time::sleep(MS(60_000)).await;
    check_count(&log, "replaced under its connection", 1);
    check_count(&log, "votes from now on", 2);
    check_lines(&log, 4);
    let named = format!(" node={}", nodes.memory[0].address());
    check_count(&log, &named, 4);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_expiry_is_logged_once_in_ten_seconds() {
    let (log, _guard) = Log::start();
    // The time that keys had left, as the node claims in each answer to an extension.
    let remaining = Arc::new(Mutex::new(HOUR));
    let claimed = Arc::clone(&remaining);
    let node = Scripted::new(&MemoryNode::new(), move |_, batch| {
        let remaining = *claimed.lock().unwrap();
        let vote = |command: &Command| match command.operation() {
            Operation::Extend { .. } => Ok(Vote::Extended { remaining }),
            _ => Ok(Vote::Granted),
        };
        ready(Ok(batch.iter().map(vote).collect())).boxed()
    });
    let guard = built(over_custom([node])).await.lock("k").await.unwrap();
    let extend = async |claimed| {
        *remaining.lock().unwrap() = claimed;
        guard.extend().await.unwrap();
    };
    let short = "less time left than the lock relies on";
    let long = "more time left than it was given";
    for claimed in [MS(9_990), MS(5), MS(5), MS(5), HOUR] {
        extend(claimed).await;
    }
    check_count(&log, short, 1);
    check_count(&log, long, 1);
    tokio::time::sleep(MS(10_000)).await;
    extend(MS(5)).await;
    check_count(&log, short, 2);
    check_count(&log, "withheld=2", 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
    let (log, _guard) = Log::start();
    let (nodes, redlock) = sound_nodes().await;
    set_down(&nodes.memory, true);
    for _ in 0..10 {
        redlock.lock("k").wait(MS(500)).await.unwrap_err();
    }
    check_count(&log, "no lock can be acquired", 1);
    check_count(&log, "a lock was acquired, so the outage is over", 0);
    set_down(&nodes.memory, false);
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
    let usual = |it: &Redlock| it.lock("secret");
    let several = |it: &Redlock| it.lock_all(["b", "a"]);
    let odd = |it: &Redlock| it.lock("a\nWARN b");
    let logged = |it: RedlockBuilder| it.prefix("lock:").log_keys(true);
    let hidden = |it: RedlockBuilder| it.label("all").log_keys(true).log_keys(false);
    let keys = "keys=[\"lock:a\", \"lock:b\"]";
    let cases: [Case; 3] = [
        (hidden, usual, ["label=\"all\"", "keys="]),
        (logged, several, [keys, "label="]),
        (logged, odd, [r"a\nWARN b", "label="]),
    ];
    for (configure, lock, [has, lacks]) in cases {
        let (log, _guard) = Log::start();
        let nodes = three_nodes();
        let redlock = built(configure(over(&nodes))).await;
        let guard = lock(&redlock).await.unwrap();
        nodes.iter().for_each(MemoryNode::clear);
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
    nodes.memory.iter().for_each(MemoryNode::clear);
    second.lost().await;
    check_count(&log, "a lock was lost label=\"second\"", 1);
    check_count(&log, "a lock was lost label=\"first\"", 0);
    check_count(&log, "secret", 0);
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_logged_with_who_did_it_and_whose_lock_it_was() {
    let (log, _guard) = Log::start();
    let nodes = three_nodes();
    let labelled = |label| built(over(&nodes).log_keys(true).client_name(label));
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

/// Three nodes. A test sets how the first one describes itself.
struct Nodes {
    memory: Vec<MemoryNode>,
    first: Arc<Mutex<Server>>,
}

impl Nodes {
    fn new(first: Server) -> Self {
        Self {
            memory: three_nodes(),
            first: Arc::new(Mutex::new(first)),
        }
    }

    fn describe_first(&self, server: Server) {
        *self.first.lock().unwrap() = server;
    }

    fn builder(&self) -> RedlockBuilder {
        let nodes = self.memory.iter().zip(b'a'..).map(|(node, letter)| {
            let first = Arc::clone(&self.first);
            Scripted::obeying(node).server(move || match letter {
                b'a' => first.lock().unwrap().clone(),
                _ => sound(letter),
            })
        });
        over_custom(nodes)
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

async fn sound_nodes() -> (Nodes, Redlock) {
    let nodes = Nodes::new(sound(b'a'));
    let redlock = built(nodes.builder()).await;
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
