//! A run over nodes in memory on a paused clock follows from the seeds and the clocks that the test gives. The simulator runs
//! each of its seeds twice, and compares all messages.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::ready};
use redlock_tokio::NodeError;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::{
    MS, built,
    in_memory::{paused_runtime, three_nodes},
    scripted::{Reports, Scripted, over_custom},
};

#[test]
fn one_seed_replays_one_run() {
    let run = run(Some(7));
    assert_eq!(run, self::run(Some(7)));
    for part in ["connects", "granted", "handed over"] {
        assert!(run.iter().any(|it| it.contains(part)), "{part}: {run:#?}");
    }
}

#[test]
fn without_the_seed_nothing_is_predictable() {
    for seeds in [[Some(7), Some(70)], [None, None]] {
        let [one, other] = seeds.map(run);
        let is_connect = |it: &&String| it.ends_with("connects");
        let connects = |run: &[String]| run.iter().filter(is_connect).cloned().collect::<Vec<_>>();
        assert_ne!(connects(&one), connects(&other));
        // Single attempts to connect may be at the same millisecond in both runs. Tokens are never the same.
        let mut same = one.iter().filter(|it| other.contains(it));
        assert!(same.all(|it| is_connect(&it)), "{one:?} {other:?}");
    }
}

/// Lets two processes contend for a key, beside a node that cannot be connected to. Returns what happened, with its time.
fn run(seed: Option<u64>) -> Vec<String> {
    paused_runtime().block_on(async {
        let (start, nodes) = (Instant::now(), three_nodes());
        let trace = Arc::new(Mutex::new(Vec::new()));
        let note = {
            let trace = Arc::clone(&trace);
            move |text: &str| {
                let line = format!("{:?} {text}", start.elapsed());
                trace.lock().unwrap().push(line);
            }
        };
        let mut tasks = JoinSet::new();
        for process in 0..2 {
            let nodes = nodes.iter().enumerate().map(|(index, node)| {
                let note = note.clone();
                let node = Scripted::obeying(node).address(&format!("node {index}"));
                node.reports(Reports::Arrive).connect(move || {
                    if index > 0 {
                        return ready(Ok(())).boxed();
                    }
                    note(&format!("process {process} connects"));
                    ready(Err(NodeError::Unreachable("down".into()))).boxed()
                })
            });
            let mut builder = over_custom(nodes).wall_clock(move || start.elapsed());
            if let Some(seed) = seed {
                builder = builder.random_seed(seed + process);
            }
            let redlock = built(builder).await;
            for task in 0..4 {
                let (redlock, note) = (redlock.clone(), note.clone());
                tasks.spawn(async move {
                    for _ in 0..10 {
                        let lock = redlock.lock("k").fenced(task == 0).wait(Duration::MAX);
                        let guard = lock.await.unwrap();
                        note(&format!("{} {}", guard.token(), guard.acquisition()));
                        sleep(MS(3)).await;
                    }
                });
            }
        }
        tasks.join_all().await;
        let lines = trace.lock().unwrap();
        lines.clone()
    })
}
