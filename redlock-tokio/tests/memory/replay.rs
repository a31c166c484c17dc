//! A run over nodes in memory on a paused clock repeats itself exactly, if the test gives the seed and the clocks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::ready};
use redlock_tokio::{Key, LockError, LockGuard, LockOptions, MemoryNode, Redlock, node::Session};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    MS, built,
    in_memory::paused_runtime,
    scripted::{Reports, Scripted, over_custom},
};

const PROCESSES: usize = 2;
const NODES: usize = 5;

/// What the processes do, and what becomes of it, in order.
#[derive(Clone)]
struct Trace {
    start: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            lines: Arc::default(),
        }
    }

    fn note(&self, text: &str) {
        let line = format!("{:?} {text}", self.start.elapsed());
        self.lines.lock().unwrap().push(line);
    }
}

/// A node that is some milliseconds away, as one process sees it.
fn distant(node: &MemoryNode, name: String, latency: Duration, trace: &Trace) -> Scripted {
    let (address, asked, opened) = (name.clone(), trace.clone(), trace.clone());
    let connects = format!("{name} connect");
    let node = Scripted::new(node, move |node, batch| {
        for command in batch {
            let keys = command.keys().map(Key::as_bytes);
            let keys = String::from_utf8(keys.collect::<Vec<_>>().join(&b'+')).unwrap();
            asked.note(&format!("{name} {keys} {:?}", command.operation()));
        }
        let (name, trace, answers) = (name.clone(), asked.clone(), node.execute(batch));
        async move {
            tokio::time::sleep(latency).await;
            let answers = answers.await;
            trace.note(&format!("{name} answers {answers:?}"));
            answers
        }
        .boxed()
    });
    let node = node.address(&address).reports(Reports::Arrive);
    node.connect(move || {
        opened.note(&connects);
        ready(Ok(())).boxed()
    })
}

/// Where the random numbers of a run come from.
#[derive(Clone, Copy)]
enum Randomness {
    System,
    /// Each process has a seed that follows from this one.
    Seed(u64),
}

/// Lets two processes contend for keys in every way, while nodes fail. Returns what happened.
fn run(randomness: Randomness) -> Vec<String> {
    paused_runtime().block_on(async {
        let trace = Trace::new();
        let nodes = [(); NODES].map(|()| MemoryNode::new());
        let mut tasks = JoinSet::new();
        let mut processes = Vec::new();
        for process in 0..PROCESSES {
            let redlock = start(process, &nodes, randomness, &trace).await;
            for user in 0..4 {
                tasks.spawn(use_locks(process, user, redlock.clone(), trace.clone()));
            }
            processes.push(redlock);
        }
        tasks.spawn(fail(nodes.to_vec()));
        tasks.join_all().await;
        for redlock in processes {
            redlock.shutdown(None).await;
        }
        trace.note("end");
        let lines = trace.lines.lock().unwrap();
        lines.clone()
    })
}

async fn start(
    process: usize,
    nodes: &[MemoryNode],
    randomness: Randomness,
    trace: &Trace,
) -> Redlock {
    let nodes = nodes.iter().enumerate().map(|(index, node)| {
        let name = format!("process {process} node {index}");
        distant(node, name, MS(1 + index as u64), trace)
    });
    let start = Instant::now();
    // The wall clocks differ by 3 s, and each is set back by 1 s after half a second.
    let wall_clock = move || {
        let passed = start.elapsed();
        let is_set_back = passed > MS(500);
        let ahead = Duration::from_secs(3 * process as u64 + u64::from(!is_set_back));
        Duration::from_secs(1_700_000_000) + ahead + passed
    };
    let options = LockOptions::new().wait(Duration::from_secs(60));
    let builder = over_custom(nodes).wall_clock(wall_clock).options(options);
    let builder = match randomness {
        Randomness::System => builder,
        Randomness::Seed(seed) => builder.random_seed(seed + process as u64),
    };
    built(builder).await
}

async fn use_locks(process: usize, user: usize, redlock: Redlock, trace: Trace) {
    let name = format!("process {process} user {user}");
    for turn in 0..12 {
        let outcome = match (user + turn) % 4 {
            0 => redlock.lock("fenced").fenced(true).await,
            1 => redlock.lock_all(["a", "b"]).await,
            2 => redlock.lock("b").wait(MS(30)).await,
            _ => redlock.lock("a").await,
        };
        trace.note(&format!("{name} {}", described(&outcome)));
        if let Ok(guard) = outcome {
            tokio::time::sleep(MS(2 + user as u64)).await;
            if turn % 3 == 0 {
                let extended = guard.extend().await;
                trace.note(&format!("{name} extends: {extended:?}"));
            }
        }
    }
}

fn described(outcome: &Result<LockGuard, LockError>) -> String {
    match outcome {
        Ok(guard) => format!("{:?} {:?}", guard.fencing_token(), guard.acquisition()),
        Err(error) => error.to_string(),
    }
}

/// Makes one node forget everything, and takes another one down for a while.
async fn fail(nodes: Vec<MemoryNode>) {
    tokio::time::sleep(MS(50)).await;
    nodes[0].set_down(true);
    tokio::time::sleep(MS(150)).await;
    nodes[1].clear();
    tokio::time::sleep(MS(800)).await;
    nodes[0].set_down(false);
}

#[test]
fn one_seed_replays_one_run() {
    let first = run(Randomness::Seed(7));
    for _ in 0..3 {
        let again = run(Randomness::Seed(7));
        let differ = first.iter().zip(&again).find(|(one, other)| one != other);
        assert_eq!(differ, None, "the first difference");
        assert_eq!(first.len(), again.len());
    }
    // The run has what could differ: contention, probes, fences, handovers, and attempts to connect with pauses.
    for (part, fewest) in [
        ("Denied", 10),
        ("Probe", 10),
        ("Fence", 10),
        ("HandedOver", 5),
        ("the lock is taken", 1),
        ("node 0 connect", 8),
        ("a+b Acquire", 10),
    ] {
        let count = lines(&first, part).len();
        assert!(count >= fewest, "{count} lines with `{part}`");
    }
}

#[test]
fn another_seed_makes_another_run() {
    let [one, other] = [7, 70].map(|seed| run(Randomness::Seed(seed)));
    assert_ne!(acquisitions(&one), acquisitions(&other));
    assert_ne!(connects(&one), connects(&other));
}

#[test]
fn without_a_seed_nothing_is_predictable() {
    let [one, other] = [(); 2].map(|()| run(Randomness::System));
    for line in acquisitions(&one) {
        assert!(!other.contains(line), "in both runs: {line}");
    }
    assert_ne!(connects(&one), connects(&other));
}

/// Returns the requests to set keys, with their tokens.
fn acquisitions(trace: &[String]) -> Vec<&String> {
    lines(trace, "Acquire {")
}

/// Returns the attempts to connect to the node that fails, with their times.
fn connects(trace: &[String]) -> Vec<&String> {
    lines(trace, "node 0 connect")
}

fn lines<'a>(trace: &'a [String], part: &str) -> Vec<&'a String> {
    trace.iter().filter(|line| line.contains(part)).collect()
}
