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
    time::{Instant, interval, sleep, timeout},
};

pub(crate) use self::task::STEP_LIMIT;
use self::{store::Store, task::Task};
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
    pub(crate) store: String,
    pub(crate) nodes: Vec<String>,
}

impl Order {
    const FLAG: &str = "--worker";

    /// Returns the order in these arguments, if they are those of a worker.
    pub(crate) fn parse(arguments: &[String]) -> Option<Result<Self>> {
        let [flag, order] = arguments else {
            return None;
        };
        (flag == Self::FLAG).then(|| Ok(serde_json::from_str(order)?))
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
    for number in 0..order.topology.tasks() {
        let task = Task {
            redlock: redlock.clone(),
            store: store.clone(),
            order: Arc::clone(&order),
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
    let builder = match order.topology {
        Topology::Masters => builder.node_timeout(MS(100)),
        Topology::Sentinel | Topology::Cluster => builder
            .node_timeout(MS(250))
            .confirmation_window(Topology::WINDOW),
    };
    let builder = builder.max_ttl(MAX_TTL).ttl(MAX_TTL);
    let builder = match order.breakage {
        Some(_) => builder.durability(Durability::AssumedForTests),
        None => builder,
    };
    let redlock = builder.build().await?;
    let mut last = String::new();
    let first = async {
        let own = format!("soak:worker:{}", std::process::id());
        while let Err(error) = redlock.try_lock(&own).await {
            last = error.to_string();
            sleep(MS(100)).await;
        }
    };
    let in_time = timeout(START, first).await.is_ok();
    if !in_time {
        return Err(format!("no lock was granted while all nodes were up: {last}").into());
    }
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
