//! A process that locks, and reports its holds.

mod journal;
mod process;
mod store;
mod task;
mod watch;

use std::{io, process::exit, thread, time::Duration};

use fastrand::Rng;
use redlock_tokio::Redlock;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::{
    runtime::Builder,
    sync::watch as switch,
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

pub(crate) use self::task::TURN_LIMIT;
use self::{store::Store, task::Task};
use crate::{Result, bed::MAX_TTL, line::Line, order::Order, settings::Breakage, support::MS};

/// How many tasks each worker runs.
const TASKS: u64 = 80;

/// How long a worker waits for its first lock.
const START: Duration = Duration::from_secs(20);

/// How long the lanes may take to close their connections.
const CLOSING: Duration = Duration::from_secs(5);

/// Carries out an order until standard input ends.
pub(crate) fn work(order: &Order) -> Result<()> {
    // A stopped process does not notice the end of standard input.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(order))
}

async fn serve(order: &Order) -> Result<()> {
    let store = Store::connect(&order.store).await?;
    let sockets = process::sockets()?;
    let redlock = connect(order).await?;
    let leaked = match order.breakage {
        Some(Breakage::Leak) => Some(Store::connect(&order.store).await?),
        _ => None,
    };
    journal::tell(&Line::Ready);

    let (stop, stopped) = switch::channel(false);
    thread::spawn(move || {
        // Nothing is ever written to this pipe, so the call returns when the pipe is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = stop.send(true);
    });
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let task = Task {
            redlock: redlock.clone(),
            store: store.clone(),
            locks: order.breakage != Some(Breakage::NoLock),
            leaks: order.breakage == Some(Breakage::Leak),
            rng: Rng::with_seed(order.seed.wrapping_mul(1000).wrapping_add(number)),
            stopped: stopped.clone(),
        };
        tasks.spawn(task.run());
    }
    let sampler = tokio::spawn(sample());
    while let Some(outcome) = tasks.join_next().await {
        outcome??; // The panic of a task ends the worker.
    }
    sampler.abort();

    let report = redlock.shutdown().await;
    drop(redlock);
    // The lanes close their connections once the last handle is dropped.
    let deadline = Instant::now() + CLOSING;
    while process::sockets()? > sockets && Instant::now() < deadline {
        sleep(MS(20)).await;
    }
    journal::tell(&Line::Ended {
        held: report.held,
        abandoned: report.abandoned,
        sockets: process::sockets()?.saturating_sub(sockets),
    });
    drop(leaked);
    // The thread that reads standard input may still run.
    exit(0)
}

/// Connects to the nodes, and waits for a first lock.
async fn connect(order: &Order) -> Result<Redlock> {
    let builder = Redlock::builder()
        .nodes(&order.nodes)
        .max_ttl(MAX_TTL)
        .ttl(MAX_TTL)
        .node_timeout(MS(100));
    let builder = match order.breakage {
        Some(_) => builder.trust_fresh_nodes(),
        None => builder,
    };
    let redlock = builder.build().await?;
    let first = async {
        let own = format!("soak:worker:{}", std::process::id());
        while redlock.try_lock(&own).await.is_err() {
            sleep(MS(100)).await;
        }
    };
    timeout(START, first)
        .await
        .map_err(|_| "no lock was granted while all nodes were up")?;
    Ok(redlock)
}

/// Reports the size of the process once a second.
async fn sample() -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        journal::tell(&Line::Size(process::size()?));
    }
}
