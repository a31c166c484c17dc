//! A process that locks, and tells what it held.

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

use self::{store::Store, task::Task};
use crate::{Result, bed::MAX_TTL, line::Line, order::Order, settings::Breakage, support::MS};

/// How many tasks each worker has.
const TASKS: u64 = 80;

/// Longer than any turn of a task takes by itself, and any stop of its process.
pub(crate) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// How long it may take until all nodes have a vote.
const START: Duration = Duration::from_secs(20);

/// How long it may take until connections have been closed that nobody needs any more.
const CLOSING: Duration = Duration::from_secs(5);

/// Does what the order says until standard input ends.
pub(crate) fn work(order: &Order) -> Result<()> {
    // The end of standard input says the same, but not to a process that is stopped.
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
        // A pipe on which nothing is ever said: this returns when it is closed.
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
        outcome??; // a task's panic is the worker's end
    }
    sampler.abort();

    let report = redlock.shutdown().await;
    drop(redlock);
    // The lanes close their connections when they notice that nobody is left.
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
    // The thread that reads standard input may be in the middle of that.
    exit(0)
}

/// Connects to the nodes, and waits until they trust themselves to give out locks.
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
        .map_err(|_| "no lock could be had, with all nodes up")?;
    Ok(redlock)
}

/// Tells now and then what the process uses.
async fn sample() -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        journal::tell(&Line::Size(process::size()?));
    }
}
