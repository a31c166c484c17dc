use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use allocation_counter::AllocationInfo;
use redlock_tokio::test_util::RedisServers;
use serde::Serialize;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::{
    Result,
    contestant::Contestant,
    contestants::{Multiplexed, Ours, Rslock, Sockets},
    table,
};

const TASKS: [usize; 2] = [1, 64];

/// Enough for what happens once to count for nothing.
const CYCLES: usize = 6_400;

const LIMIT: Duration = Duration::from_secs(30);

/// The cost of a cycle for the client on any machine: allocations, and wake-ups of the task
/// that waits. All on one thread, whose allocations can be counted.
#[derive(Serialize)]
pub(crate) struct Thrift {
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    tasks: usize,
    contestant: &'static str,
    allocations: f64,
    bytes: f64,
    acquire_polls: f64,
    release_polls: f64,
}

/// How often futures were polled.
#[derive(Default)]
struct Polls {
    acquire: AtomicU64,
    release: AtomicU64,
}

pub(crate) fn measure(quick: bool) -> Result<Thrift> {
    let servers = RedisServers::spawn(5)?;
    let urls = servers.urls();
    let cycles = if quick { CYCLES / 10 } else { CYCLES };
    let mut entries = Vec::new();
    for tasks in TASKS {
        entries.push(count::<Sockets>(&urls, tasks, cycles)?);
        entries.push(count::<Multiplexed>(&urls, tasks, cycles)?);
        entries.push(count::<Rslock>(&urls, tasks, cycles)?);
        entries.push(count::<Ours>(&urls, tasks, cycles)?);
    }
    Ok(Thrift { entries })
}

fn count<C: Contestant>(urls: &[String], tasks: usize, cycles: usize) -> Result<Entry> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let contestant = runtime.block_on(C::connect(urls))?;
    // Buffers have grown to their size.
    run(&runtime, &contestant, tasks, cycles / 4)?;
    let mut polls = Ok(Arc::default());
    let AllocationInfo {
        count_total,
        bytes_total,
        ..
    } = allocation_counter::measure(|| polls = run(&runtime, &contestant, tasks, cycles));
    let polls: Arc<Polls> = polls?;
    let per_cycle = |count: u64| count as f64 / cycles as f64;
    Ok(Entry {
        tasks,
        contestant: C::NAME,
        allocations: per_cycle(count_total),
        bytes: per_cycle(bytes_total),
        acquire_polls: per_cycle(polls.acquire.load(Ordering::Relaxed)),
        release_polls: per_cycle(polls.release.load(Ordering::Relaxed)),
    })
}

fn run<C: Contestant>(
    runtime: &Runtime,
    contestant: &C,
    tasks: usize,
    cycles: usize,
) -> Result<Arc<Polls>> {
    let polls = Arc::new(Polls::default());
    let all = async {
        let mut running: JoinSet<Result<()>> = JoinSet::new();
        for task in 0..tasks {
            let (contestant, polls) = (contestant.clone(), Arc::clone(&polls));
            running.spawn(async move {
                let key = format!("thrift:{task}");
                for _ in 0..cycles / tasks {
                    let held = counted(contestant.acquire(&key), &polls.acquire).await?;
                    counted(contestant.release(&key, held), &polls.release).await?;
                }
                Ok(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let done = runtime.block_on(async { tokio::time::timeout(LIMIT, all).await });
    done.map_err(|_| format!("{}: not done within {LIMIT:?}", C::NAME))??;
    Ok(polls)
}

/// Counts how often a future is polled: once if it never waits, twice if it is woken once.
async fn counted<F: Future>(future: F, polls: &AtomicU64) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

impl fmt::Display for Thrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## Allocations and wake-ups per cycle, five nodes, one thread\n"
        )?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("contestant", &|it| it.contestant.to_owned()),
            ("tasks", &|it| it.tasks.to_string()),
            ("allocations", &|it| format!("{:.1}", it.allocations)),
            ("bytes", &|it| table::whole(it.bytes)),
            ("polls of acquire", &|it| format!("{:.2}", it.acquire_polls)),
            ("polls of release", &|it| format!("{:.2}", it.release_polls)),
        ];
        let table = table::of(&self.entries, columns);
        writeln!(f, "{table}")
    }
}
