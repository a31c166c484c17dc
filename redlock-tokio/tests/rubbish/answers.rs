//! Servers that answer rubbish: wrong answers, cut short, unasked, or not Redis at all. A minority of them
//! costs nothing, and a majority leads to a typed error in time. Rubbish is never a vote.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_tokio::{BuildError, LockError, LockOptions, MemoryNode, Redlock, RedlockBuilder};

use crate::support::{
    MS, eventually,
    fake::{Act, Fake, LOCKING},
    panics, rubbish, trusting,
};

const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// So long that a slow machine does not look like a lock that waits for a node.
const LONG_TIMEOUT: Duration = Duration::from_secs(6);

/// The wait of each lock.
const WAIT: Duration = Duration::from_millis(400);

/// The longest report of one node in an error, in characters: a line or two of a log.
const LONGEST_REPORT: usize = 500;

/// A service over five nodes of which some answer rubbish.
struct Scene {
    name: String,
    fakes: Vec<Fake>,
    redlock: Redlock,
}

impl Scene {
    async fn new(name: &str, count: usize, acts: &[Act], timeout: Duration) -> Self {
        panics::watch();
        let fakes: Vec<_> = (0..count).map(|_| Fake::at(LOCKING, acts)).collect();
        let builder = among_five(fakes.iter().map(Fake::url));
        let redlock = builder.node_timeout(timeout).build().await;
        let redlock = redlock.unwrap_or_else(|error| panic!("{name}: {error}"));
        let name = name.to_owned();
        Self {
            name,
            fakes,
            redlock,
        }
    }

    fn odd_answers(&self) -> usize {
        self.fakes.iter().map(Fake::odd_answers).sum()
    }
}

/// Returns a builder over these servers, with nodes in memory to make five.
fn among_five(urls: impl ExactSizeIterator<Item = String>) -> RedlockBuilder {
    let others = (urls.len()..5).map(|_| MemoryNode::new());
    let options = LockOptions::new().retry_delay(MS(5), MS(20));
    trusting(urls)
        .custom_nodes(others)
        .options(options)
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(NODE_TIMEOUT)
}

fn nothing_panicked() {
    assert_eq!(panics::count(), 0, "the panic is printed above");
}

fn assert_names_and_is_short(name: &str, fakes: &[Fake], error: &LockError) {
    let nodes = &error.attempts().expect("nodes were asked").nodes;
    for report in nodes.iter() {
        let text = report.objection.to_string();
        let len = text.chars().count();
        assert!(
            len < LONGEST_REPORT,
            "{name}: {len} characters: {text:.600}",
        );
    }
    // The end of the wait cuts the last attempt short, so the error may not name all of them.
    let text = error.to_string();
    let is_named = fakes.iter().any(|fake| text.contains(&fake.address()));
    assert!(is_named, "{name}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_answers_rubbish_costs_nothing_and_recovers() {
    let cases = rubbish::all();
    let scenes = cases
        .iter()
        .map(|(name, acts)| Scene::new(name, 2, acts, LONG_TIMEOUT));
    let scenes = join_all(scenes).await;
    for scene in &scenes {
        let (name, fakes) = (&scene.name, &scene.fakes);
        let before = Instant::now();
        for number in 0..10 {
            let key = format!("k{number}");
            let guard = scene.redlock.try_lock(key).await;
            let guard = guard.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(guard.is_valid());
        }
        // No lock has waited for the two.
        let taken = before.elapsed();
        assert!(taken < LONG_TIMEOUT, "{name}: {taken:?}");
        eventually(name, || fakes.iter().all(|it| it.odd_answers() > 0)).await;
    }
    for fake in scenes.iter().flat_map(|it| &it.fakes) {
        fake.be_sane();
    }
    join_all(scenes.iter().map(used_again)).await;
    nothing_panicked();
}

async fn used_again(scene: &Scene) {
    let until = Instant::now() + Duration::from_secs(60);
    while scene.fakes.iter().any(|it| it.grants() == 0) {
        assert!(Instant::now() < until, "{}: not used again", scene.name);
        let guard = scene.redlock.lock("again").await;
        drop(guard.unwrap_or_else(|error| panic!("{}: {error}", scene.name)));
        tokio::time::sleep(MS(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_answers_rubbish_gives_no_lock_and_an_error_in_time() {
    let cases = rubbish::all();
    let scenes = cases
        .iter()
        .map(|(name, acts)| Scene::new(name, 3, acts, NODE_TIMEOUT));
    let scenes = join_all(scenes).await;
    join_all(scenes.iter().map(async |scene| {
        let (name, fakes) = (&scene.name, &scene.fakes);
        // On a busy machine the connections may break before the first command.
        for _ in 0..20 {
            let before = Instant::now();
            let outcome = scene.redlock.lock("k").wait(WAIT).await;
            let taken = before.elapsed();
            let error = outcome.map(drop).expect_err(name);
            // The last attempt may begin at the end of the wait, and takes a node's timeout.
            assert!(taken < WAIT + NODE_TIMEOUT + MS(4000), "{name}: {taken:?}");
            assert!(
                matches!(error, LockError::NoQuorum(_) | LockError::Contended(_)),
                "{name}: {error:?}"
            );
            assert_names_and_is_short(name, fakes, &error);
            if scene.odd_answers() > 0 {
                break;
            }
        }
        assert!(scene.odd_answers() > 0, "{name}: it was not tested");
    }))
    .await;
    nothing_panicked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_one_line_even_if_a_node_sends_control_characters() {
    let acts = [Act::Say(b"-ERR \x07\x1b[2J\ninjected=line\r\n".into())];
    let scene = Scene::new("a bell", 3, &acts, NODE_TIMEOUT).await;
    let error = scene.redlock.try_lock("k").await.map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("ERR"), "{text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

/// The commands that a client sends when it connects, in their order.
const CONNECTING: [&[&str]; 4] = [&["CLIENT"], &["HELLO"], &["SCRIPT"], &["INFO"]];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_while_connecting_names_the_node_or_costs_nothing() {
    panics::watch();
    let cases = rubbish::all();
    let mut runs = Vec::new();
    for (name, acts) in &cases {
        let fakes = [0, 1].map(|_| Fake::at_once(acts));
        runs.push((format!("{name}, at once"), fakes));
        for commands in CONNECTING {
            let fakes = [0, 1].map(|_| Fake::at(commands, acts));
            runs.push((format!("{name}, at {commands:?}"), fakes));
        }
    }
    // All at once would exceed the time that each client has to connect.
    for some in runs.chunks(64) {
        join_all(some.iter().map(|(name, fakes)| connect_to(name, fakes))).await;
    }
    // On a busy machine some clients give up before the rubbish arrives.
    let tested = |(_, fakes): &&(String, [Fake; 2])| fakes.iter().any(|it| it.odd_answers() > 0);
    let (tested, all) = (runs.iter().filter(tested).count(), runs.len());
    assert!(tested > all * 3 / 4, "{tested} of {all} were tested");
    nothing_panicked();
}

async fn connect_to(name: &str, fakes: &[Fake]) {
    let before = Instant::now();
    let urls = fakes
        .iter()
        .map(|it| format!("{}?protocol=resp3", it.url()));
    let built = among_five(urls).build().await;
    let taken = before.elapsed();
    assert!(taken < Duration::from_secs(5), "{name}: {taken:?}");
    match built {
        // The client takes the nodes for unavailable, or it does not need the answer.
        Ok(redlock) => {
            let guard = redlock.lock("k").await;
            drop(guard.unwrap_or_else(|error| panic!("{name}: {error}")));
        }
        // The client takes the node for something else than a lock server.
        Err(error @ BuildError::Refused { .. }) => {
            let text = error.to_string();
            assert!(text.chars().count() < LONGEST_REPORT, "{name}: {text:.600}");
            let is_named = fakes.iter().any(|it| text.contains(&it.address()));
            assert!(is_named, "{name}: {text}");
        }
        Err(other) => panic!("{name}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_in_tasks_of_the_driver_are_counted() {
    let in_a_task = tokio::spawn(async { panics::is_watched() });
    assert!(in_a_task.await.unwrap());
    assert!(!panics::is_watched(), "not in the thread of a test");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_many_packets_is_an_answer() {
    let acts = b"+OK\r\n".map(|byte| Act::Say(vec![byte]));
    let Scene { redlock, fakes, .. } = Scene::new("bytewise", 3, &acts, NODE_TIMEOUT).await;
    // The two nodes in memory answer before the first byte arrives.
    let guard = redlock.try_lock("k").await.expect("five votes");
    assert!(guard.is_valid());
    assert!(fakes.iter().any(|it| it.odd_answers() > 0));
}
