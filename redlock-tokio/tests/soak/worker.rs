//! A process that locks, and reports its holds.

mod journal;
mod process;
mod sight;
mod store;
mod task;
mod watch;

use std::{io, process::exit, sync::Arc, thread, time::Duration};

use fastrand::Rng;
use redlock_tokio::{Durability, Redlock};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Builder,
    sync::watch as switch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use self::{store::Store, task::Task};
pub(crate) use self::{store::WRITE, task::STEP_LIMIT};
use crate::{
    Result,
    line::{Ended, Line},
    settings::Breakage,
    support::MS,
    topology::{MAX_TTL, Topology},
};

/// How long a worker waits for its first lock.
const START: Duration = Duration::from_secs(20);

/// How long the lanes may take to close their connections.
const CLOSING: Duration = Duration::from_secs(5);

/// The task of a worker process, as arguments of its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) breakage: Option<Breakage>,
    /// Whether the worker does nothing but wait.
    pub(crate) waits: bool,
    pub(crate) store: String,
    pub(crate) nodes: Vec<String>,
}

impl Order {
    pub(crate) const FLAG: &str = "--worker";

    /// Returns the order that follows the flag.
    pub(crate) fn parse(order: &str) -> Result<Self> {
        Ok(serde_json::from_str(order)?)
    }

    pub(crate) fn arguments(&self) -> Result<[String; 2]> {
        Ok([Self::FLAG.into(), serde_json::to_string(self)?])
    }
}

/// Carries out an order until standard input ends.
pub(crate) fn work(order: Order) -> Result<()> {
    // A stopped process does not notice the end of standard input.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(Arc::new(order)))
}

async fn serve(order: Arc<Order>) -> Result<()> {
    let store = Store::connect(&order.store).await?;
    let sockets = process::sockets()?;
    let redlock = connect(&order).await?;
    let leaked = match order.breakage {
        Some(Breakage::Leak) => Some(Store::connect(&order.store).await?),
        _ => None,
    };
    journal::tell(&Line::Ready);
    thread::spawn(journal::beat);

    let (stop, stopped) = switch::channel(false);
    thread::spawn(move || {
        // Nothing is ever written to this pipe, so the call returns when the pipe is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = stop.send(true);
    });
    let mut tasks = JoinSet::new();
    for number in 0..order.topology.tasks(order.waits) {
        let task = Task {
            number,
            redlock: redlock.clone(),
            store: store.clone(),
            order: Arc::clone(&order),
            rng: Rng::with_seed(order.seed.wrapping_mul(1000).wrapping_add(number as u64)),
            stopped: stopped.clone(),
        };
        tasks.spawn(task.run());
    }
    let sampler = tokio::spawn(sample());
    while let Some(outcome) = tasks.join_next().await {
        outcome??; // The panic of a task ends the worker.
    }
    sampler.abort();

    let begin = Instant::now();
    let report = redlock.shutdown(None).await;
    let shutdown_ms = begin.elapsed().as_millis() as u64;
    drop(redlock);
    // The lanes close their connections once the last handle is dropped.
    let deadline = Instant::now() + CLOSING;
    while process::sockets()? > sockets && Instant::now() < deadline {
        sleep(MS(20)).await;
    }
    journal::tell(&Line::Ended(Ended {
        held: report.held,
        sockets: process::sockets()?.saturating_sub(sockets),
        shutdown_ms,
    }));
    drop(leaked);
    // The thread that reads standard input may still run.
    exit(0)
}

/// Connects to the nodes, and waits for a first lock.
async fn connect(order: &Order) -> Result<Redlock> {
    let builder = Redlock::builder().nodes(&order.nodes);
    let mut builder = builder.node_timeout(MS(100)).max_ttl(MAX_TTL).ttl(MAX_TTL);
    if order.topology != Topology::Masters {
        let timeout = MS(250);
        builder = builder
            .node_timeout(timeout)
            .confirmation_window(Topology::WINDOW);
    }
    if order.breakage.is_some() {
        builder = builder.durability(Durability::AssumedForTests);
    }
    let redlock = builder.build().await?;
    let mut last = String::new();
    let first = async {
        let own = format!("soak:worker:{}", std::process::id());
        while let Err(error) = redlock.try_lock(&own).await {
            last = error.to_string();
            sleep(MS(100)).await;
        }
    };
    if timeout(START, first).await.is_err() {
        return Err(format!("no lock was granted while all nodes were up: {last}").into());
    }
    Ok(redlock)
}

/// Reports the size of the process once a second.
async fn sample() -> Result<()> {
    loop {
        journal::tell(&Line::Size(process::size()?));
        sleep(Duration::from_secs(1)).await;
    }
}
