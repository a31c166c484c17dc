use std::{
    fmt,
    time::{Duration, Instant},
};

use redlock_tokio::test_util::RedisServers;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    Result,
    contestant::Contestant,
    contestants::{Ours, Rslock},
    load::{self, Load},
    sample::Summary,
    table,
};

const TASKS: usize = 8;
const TIME: Duration = Duration::from_millis(1500);

/// Nobody waits for longer for a lock that is free.
const LIMIT: Duration = Duration::from_secs(8);

/// What a lock costs while some of the five nodes are sick.
#[derive(Serialize)]
pub(crate) struct Sickness {
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    nodes: Fault,
    contestant: &'static str,
    /// How long the very first acquisition took after the fault, in microseconds; `None` if it
    /// failed, or was given up.
    first_us: Option<f64>,
    first_error: Option<String>,
    cycles_per_s: f64,
    acquire: Summary,
    release: Summary,
    failures: u64,
    first_failure: Option<String>,
}

/// What is wrong with the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
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
        Some(entry.acquire)
    }
}

pub(crate) async fn measure(quick: bool) -> Result<Sickness> {
    let time = if quick { TIME / 5 } else { TIME };
    let mut entries = Vec::new();
    for fault in Fault::ALL {
        entries.push(suffer::<Ours>(fault, time).await?);
        entries.push(suffer::<Rslock>(fault, time).await?);
    }
    Ok(Sickness { entries })
}

/// Connects to healthy servers, which then fall sick. Each contestant has servers of its own, for
/// none to find what another left behind.
async fn suffer<C: Contestant>(fault: Fault, time: Duration) -> Result<Entry> {
    let servers = RedisServers::spawn(5)?;
    let contestant = C::connect(&servers.urls()).await?;
    let healthy = load::run(&contestant, &Load::new(TASKS, time / 5)).await?;
    healthy.flawless(C::NAME)?;

    fault.strike(&servers);
    let (first, first_error) = match first(&contestant).await {
        Ok(first) => (Some(first), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let load = Load {
        grace: LIMIT,
        ..Load::new(TASKS, time)
    };
    let sample = load::run(&contestant, &load).await?;
    // A frozen server is killed like any other, so none needs to be thawed.
    Ok(Entry {
        nodes: fault,
        contestant: C::NAME,
        first_us: first.map(|it| it.as_secs_f64() * 1e6),
        first_error,
        cycles_per_s: sample.cycles_per_second(),
        acquire: sample.acquire.summary(),
        release: sample.release.summary(),
        failures: sample.failures,
        first_failure: sample.first_failure,
    })
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
        let mut table = table::new([
            "of five nodes",
            "contestant",
            "first acquire",
            "acquire p50",
            "p99",
            "max",
            "release p50",
            "p99",
            "cycles/s",
            "failures",
        ]);
        for entry in &self.entries {
            table.add_row([
                entry.nodes.to_string(),
                entry.contestant.to_owned(),
                entry.first_us.map_or("failed".into(), table::time),
                table::time(entry.acquire.p50_us),
                table::time(entry.acquire.p99_us),
                table::time(entry.acquire.max_us),
                table::time(entry.release.p50_us),
                table::time(entry.release.p99_us),
                format!("{:.0}", entry.cycles_per_s),
                entry.failures.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        for entry in &self.entries {
            let who = format!("{}, {}", entry.contestant, entry.nodes);
            if let Some(error) = &entry.first_error {
                writeln!(f, "- {who}: the first acquire: {error}")?;
            }
            table::failures(f, &who, entry.failures, entry.first_failure.as_deref())?;
        }
        Ok(())
    }
}
