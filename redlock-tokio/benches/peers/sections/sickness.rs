use std::{
    fmt,
    time::{Duration, Instant},
};

use redlock_kit::RedisServers;
use tokio::time::timeout;

use crate::{
    Result,
    contestant::Contestant,
    contestants::{Ours, Rslock},
    load::{self, Load},
    sample::{Outcome, Sample},
    table,
    times::{Summary, us},
};

const TASKS: usize = 8;
const TIME: Duration = Duration::from_millis(2000);
const ROUNDS: u32 = 5;

/// Nobody waits for longer for a lock that is free.
const LIMIT: Duration = Duration::from_secs(8);

/// What a lock costs while some of the five nodes are sick.
pub(crate) struct Sickness {
    entries: Vec<Entry>,
}

struct Entry {
    nodes: Fault,
    contestant: &'static str,
    /// How long the very first acquisition took after the fault.
    first: Result<Duration>,
    outcome: Outcome,
}

/// What is wrong with the nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Healthy,
    OneRefuses,
    OneSilent,
    TwoSilent,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [
        Self::Healthy,
        Self::OneRefuses,
        Self::OneSilent,
        Self::TwoSilent,
    ];

    fn strike(self, servers: &RedisServers) {
        match self {
            Self::Healthy => {}
            Self::OneRefuses => servers.get(0).kill(),
            Self::OneSilent => servers.get(0).freeze(),
            Self::TwoSilent => {
                servers.get(0).freeze();
                servers.get(1).freeze();
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "all healthy",
            Self::OneRefuses => "one refuses",
            Self::OneSilent => "one silent",
            Self::TwoSilent => "two silent",
        })
    }
}

impl Sickness {
    /// Returns how long a contestant took to acquire a lock.
    pub(crate) fn acquire(&self, contestant: &str, fault: Fault) -> Option<Summary> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|it| it.contestant == contestant && it.nodes == fault)?;
        Some(entry.outcome.acquire)
    }

    /// Returns the median acquisition relative to that over healthy nodes.
    fn relative(&self, entry: &Entry) -> String {
        let healthy = self.acquire(entry.contestant, Fault::Healthy);
        healthy.map_or_else(String::new, |healthy| {
            format!("{:.2}", entry.outcome.acquire.p50_us / healthy.p50_us)
        })
    }
}

pub(crate) async fn measure(quick: bool) -> Result<Sickness> {
    let time = if quick { TIME / 5 } else { TIME };
    let mut entries = suffer::<Ours>(time).await?;
    entries.extend(suffer::<Rslock>(time).await?);
    Ok(Sickness { entries })
}

/// Measures a contestant over nodes with each fault. They take turns with the healthy ones.
async fn suffer<C: Contestant>(time: Duration) -> Result<Vec<Entry>> {
    let load = Load::new(TASKS, time / ROUNDS);
    let mut patients = Vec::new();
    for fault in Fault::ALL {
        patients.push(Patient::<C>::infect(fault).await?);
    }
    for _ in 0..ROUNDS {
        for patient in &mut patients {
            let sample = load::run(&patient.contestant, &load).await?;
            patient.sample.add_later(&sample)?;
        }
    }
    Ok(patients.into_iter().map(Patient::entry).collect())
}

/// A contestant and five nodes of its own with a fault, for none to find what another left behind.
struct Patient<C> {
    fault: Fault,
    contestant: C,
    first: Result<Duration>,
    sample: Sample,
    /// A frozen server is killed like any other, so none needs to be thawed.
    _servers: RedisServers,
}

impl<C: Contestant> Patient<C> {
    /// Connects to healthy servers, which then fall sick.
    async fn infect(fault: Fault) -> Result<Self> {
        let servers = RedisServers::spawn(5)?;
        let contestant = C::connect(&servers.urls()).await?;
        let healthy = load::run(&contestant, &Load::new(TASKS, TIME / 5)).await?;
        if let Some(failure) = healthy.first_failure {
            return Err(format!("{} over healthy nodes: {failure}", C::NAME).into());
        }
        fault.strike(&servers);
        Ok(Self {
            fault,
            first: first(&contestant).await,
            contestant,
            sample: Sample::new()?,
            _servers: servers,
        })
    }

    fn entry(self) -> Entry {
        Entry {
            nodes: self.fault,
            contestant: C::NAME,
            first: self.first,
            outcome: self.sample.outcome(),
        }
    }
}

async fn first<C: Contestant>(contestant: &C) -> Result<Duration> {
    let key = "first";
    let start = Instant::now();
    let held = timeout(LIMIT, contestant.acquire(key))
        .await
        .map_err(|_| format!("gave up after {LIMIT:?}"))??;
    let first = start.elapsed();
    timeout(LIMIT, contestant.release(key, held))
        .await
        .map_err(|_| format!("no release within {LIMIT:?}"))??;
    Ok(first)
}

impl fmt::Display for Sickness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Sick nodes: {TASKS} tasks, a key per task\n")?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("of five nodes", &|it| it.nodes.to_string()),
            ("contestant", &|it| it.contestant.to_owned()),
            ("first acquire", &|it| {
                let first = it.first.as_ref();
                first.map_or("failed".into(), |it| table::time(us(*it)))
            }),
            ("acquire p50", &|it| table::time(it.outcome.acquire.p50_us)),
            ("/ healthy", &|it| self.relative(it)),
            ("p99", &|it| table::time(it.outcome.acquire.p99_us)),
            ("max", &|it| table::time(it.outcome.acquire.max_us)),
            ("release p50", &|it| table::time(it.outcome.release.p50_us)),
            ("p99", &|it| table::time(it.outcome.release.p99_us)),
            ("cycles/s", &|it| table::whole(it.outcome.cycles_per_s)),
            ("failures", &|it| it.outcome.failures.to_string()),
        ];
        let table = table::of(&self.entries, columns);
        writeln!(f, "{table}")?;
        for entry in &self.entries {
            let who = format!("{}, {}", entry.contestant, entry.nodes);
            if let Err(error) = &entry.first {
                writeln!(f, "- {who}: the first acquire: {error}")?;
            }
            entry.outcome.write_failures(f, &who)?;
        }
        Ok(())
    }
}
