//! The two hardest faults, timed: a node that is stopped under load and goes on again, and a restart of
//! every node, one after the other, under one long hold.
//!
//! ```sh
//! cargo bench -p redlock-tokio --bench hardest   # half a minute
//! ```

#[allow(dead_code, reason = "it prints all, on a runtime of its own")]
#[path = "shared/program.rs"]
mod program;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use program::Result;
use redlock_tokio::{LockGuard, NodeState, Redlock, test_util::RedisServers};
use tokio::{runtime::Runtime, task::JoinSet};

const TASKS: usize = 64;
const PHASES: [&str; 3] = ["before", "one of five stopped", "after it goes on"];
const PHASE: Duration = Duration::from_secs(3);

/// So short that the restarts do not take minutes: each node has no vote for this long, and a second.
const TTL: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    program::start(|| {
        let runtime = Runtime::new()?;
        runtime.block_on(stop_and_go())?;
        runtime.block_on(rolling_restart())
    })
}

async fn stop_and_go() -> Result<()> {
    let servers = RedisServers::spawn(5)?;
    let redlock = servers
        .builder()
        .node_timeout(Duration::from_millis(50))
        .build()
        .await?;
    let phase = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(cycles(redlock.clone(), task, Arc::clone(&phase)));
    }
    tokio::time::sleep(PHASE).await;
    servers.get(0).freeze();
    phase.store(1, Ordering::SeqCst);
    tokio::time::sleep(PHASE).await;
    servers.get(0).thaw();
    phase.store(2, Ordering::SeqCst);
    tokio::time::sleep(PHASE).await;
    phase.store(PHASES.len(), Ordering::SeqCst);
    let mut total = histograms()?;
    while let Some(histograms) = tasks.join_next().await {
        for (total, part) in total.iter_mut().zip(histograms??) {
            total.add(part)?;
        }
    }
    println!("## {TASKS} tasks with keys of their own, one of five nodes stopped for {PHASE:?}\n");
    println!("| nodes | acquisitions | p50 | p99 | max |\n|---|---|---|---|---|");
    for (name, histogram) in PHASES.iter().zip(&total) {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        let (p50, p99, max) = (at(0.5), at(0.99), Duration::from_nanos(histogram.max()));
        println!(
            "| {name} | {} | {p50:.2?} | {p99:.2?} | {max:.2?} |",
            histogram.len()
        );
    }
    let report = redlock.shutdown().await;
    println!("\nReleases abandoned: {}.\n", report.abandoned);
    Ok(())
}

fn histograms() -> Result<[Histogram<u64>; 3]> {
    Ok([Histogram::new(3)?, Histogram::new(3)?, Histogram::new(3)?])
}

/// Acquires and releases until the last phase is over. An acquisition counts for the phase in which it
/// began.
async fn cycles(
    redlock: Redlock,
    task: usize,
    phase: Arc<AtomicUsize>,
) -> Result<[Histogram<u64>; 3]> {
    let key = format!("own:{task}");
    let mut histograms = histograms()?;
    while let Some(histogram) = histograms.get_mut(phase.load(Ordering::SeqCst)) {
        let before = Instant::now();
        let guard = redlock.lock(&key).await?;
        histogram.record(u64::try_from(before.elapsed().as_nanos())?)?;
        guard.release().await;
    }
    Ok(histograms)
}

async fn rolling_restart() -> Result<()> {
    let servers = RedisServers::spawn(5)?;
    let builder = Redlock::builder().nodes(servers.urls()).ttl(TTL);
    let redlock = builder.build().await?;
    let lock = redlock.lock("held").wait(2 * TTL + Duration::from_secs(4));
    let guard = lock.max_hold(Duration::MAX).await?;
    let start = Instant::now();
    let mut least = guard.remaining();
    println!(
        "## Every one of five nodes restarted, without persistence, under one hold of ttl {TTL:?}\n"
    );
    println!("| node | without a vote for | least validity left meanwhile |\n|---|---|---|");
    for (index, server) in servers.iter().enumerate() {
        watch(&guard, &mut least, || all_vote(&redlock)).await?;
        let before = Instant::now();
        let mut least_now = guard.remaining();
        let run_id = redlock.nodes()[index].server.as_ref().map(|it| it.run_id);
        server.restart()?;
        let has_restarted = || {
            let now = redlock.nodes()[index].server.as_ref().map(|it| it.run_id);
            now != run_id && all_vote(&redlock)
        };
        watch(&guard, &mut least_now, has_restarted).await?;
        println!(
            "| {} | {:.2?} | {least_now:.2?} |",
            index + 1,
            before.elapsed()
        );
        least = least.min(least_now);
    }
    guard.extend().await?;
    println!(
        "\nHeld for {:.1?}; never less than {least:.2?} of validity left.",
        start.elapsed()
    );
    Ok(())
}

fn all_vote(redlock: &Redlock) -> bool {
    redlock
        .nodes()
        .iter()
        .all(|it| it.state == NodeState::Voting)
}

/// Waits until something is so, and fails if the lock is lost meanwhile.
async fn watch(guard: &LockGuard, least: &mut Duration, is_so: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        if !guard.is_valid() {
            return Err(format!("lost: {}", guard.lost().await).into());
        }
        if Instant::now() > deadline {
            return Err("a node does not come back".into());
        }
        *least = (*least).min(guard.remaining());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
