use std::{
    fmt,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use tokio::time::timeout;

use crate::{
    Result,
    race::{Racer, Sample},
    shared::{
        contestants::{Contestant, Ours, Rslock},
        table,
        times::us,
    },
};

const TASKS: usize = 8;
const TIME: Duration = Duration::from_millis(2000);
const ROUNDS: u32 = 5;

/// Nobody waits for longer for a lock that is free.
const LIMIT: Duration = Duration::from_secs(8);

/// What is wrong with the nodes: how many of five were killed, and how many are stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fault {
    name: &'static str,
    killed: usize,
    stopped: usize,
}

/// The first one is none.
const FAULTS: [Fault; 4] = [
    fault("all healthy", 0, 0),
    fault("one refuses", 1, 0),
    fault("one silent", 0, 1),
    fault("two silent", 0, 2),
];

const fn fault(name: &'static str, killed: usize, stopped: usize) -> Fault {
    Fault {
        name,
        killed,
        stopped,
    }
}

/// What a lock costs while some of the five nodes are sick.
pub(crate) struct Sickness(Vec<Entry>);

struct Entry {
    fault: Fault,
    contestant: &'static str,
    /// How long the very first acquisition took after the fault.
    first: Result<Duration>,
    sample: Sample,
}

impl Sickness {
    /// Returns the median acquisition relative to that over healthy nodes.
    fn relative(&self, entry: &Entry) -> String {
        let is_healthy = |it: &&Entry| it.contestant == entry.contestant && it.fault == FAULTS[0];
        let healthy = self
            .0
            .iter()
            .find(is_healthy)
            .map_or(0.0, |it| it.sample.acquire().p50_us);
        table::ratio(entry.sample.acquire().p50_us, healthy)
    }
}

pub(crate) async fn measure(quick: bool) -> Result<Sickness> {
    let time = if quick { TIME / 5 } else { TIME };
    let mut entries = suffer::<Ours>(time).await?;
    entries.extend(suffer::<Rslock>(time).await?);
    Ok(Sickness(entries))
}

/// Measures a contestant over nodes with each fault. They take turns with the healthy ones.
async fn suffer<C: Contestant>(time: Duration) -> Result<Vec<Entry>> {
    let mut patients = Vec::new();
    for fault in FAULTS {
        patients.push(infect::<C>(fault).await?);
    }
    for _ in 0..ROUNDS {
        for (_, contestant, entry) in &mut patients {
            let round = time / ROUNDS;
            contestant.run(TASKS, round, &mut entry.sample).await?;
        }
    }
    Ok(patients.into_iter().map(|(.., entry)| entry).collect())
}

/// Connects a contestant to five servers of its own, for none to find what another left behind. Some of them then fall
/// sick. (A stopped server is killed like any other in the end.)
async fn infect<C: Contestant>(fault: Fault) -> Result<(RedisServers, C, Entry)> {
    let servers = RedisServers::spawn(5)?;
    let contestant = C::connect(&servers.urls()).await?;
    let mut healthy = Sample::default();
    contestant.run(TASKS, TIME / 5, &mut healthy).await?;
    if let Some(failure) = healthy.first_failure {
        return Err(format!("{} over healthy nodes: {failure}", C::NAME).into());
    }
    let mut sick = servers.iter();
    sick.by_ref().take(fault.killed).for_each(|it| it.kill());
    sick.take(fault.stopped).for_each(|it| it.freeze());
    let entry = Entry {
        fault,
        contestant: C::NAME,
        first: first(&contestant).await,
        sample: Sample::default(),
    };
    Ok((servers, contestant, entry))
}

async fn first<C: Contestant>(contestant: &C) -> Result<Duration> {
    let key = "first";
    let start = Instant::now();
    let held = timeout(LIMIT, contestant.acquire(key)).await??;
    let first = start.elapsed();
    timeout(LIMIT, contestant.release(key, held)).await??;
    Ok(first)
}

impl fmt::Display for Sickness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Sick nodes: {TASKS} tasks, a key per task\n")?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("of five nodes", &|it| it.fault.name.to_owned()),
            ("contestant", &|it| it.contestant.to_owned()),
            ("first acquire", &|it| {
                let first = it.first.as_ref();
                first.map_or("failed".into(), |it| table::time(us(*it)))
            }),
            ("acquire p50", &|it| table::time(it.sample.acquire().p50_us)),
            ("/ healthy", &|it| self.relative(it)),
            ("p99", &|it| table::time(it.sample.acquire().p99_us)),
            ("max", &|it| table::time(it.sample.acquire().max_us)),
            ("release p50", &|it| table::time(it.sample.release().p50_us)),
            ("p99", &|it| table::time(it.sample.release().p99_us)),
            ("cycles/s", &|it| table::whole(it.sample.cycles_per_s())),
            ("failures", &|it| it.sample.failures.to_string()),
        ];
        writeln!(f, "{}", table::of(&self.0, columns))?;
        for entry in &self.0 {
            let who = format!("{}, {}", entry.contestant, entry.fault.name);
            if let Err(error) = &entry.first {
                writeln!(f, "- {who}: the first acquire: {error}")?;
            }
            entry.sample.write_failures(f, &who)?;
        }
        Ok(())
    }
}
