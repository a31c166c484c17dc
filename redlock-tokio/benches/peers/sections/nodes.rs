use std::{fmt, time::Duration};

use redlock_tokio::test_util::RedisServers;
use serde::Serialize;

use crate::{
    Result,
    contestant::Contestant,
    contestants::Ours,
    load::{self, Load},
    sample::{Outcome, Sample},
    table,
};

const NODES: [usize; 4] = [1, 3, 5, 7];
const TASKS: usize = 64;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(400);

/// How the cost of a lock grows with the number of nodes.
#[derive(Serialize)]
pub(crate) struct Nodes {
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    nodes: usize,
    cycles_per_s: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

pub(crate) async fn measure(quick: bool) -> Result<Nodes> {
    let servers = RedisServers::spawn(NODES.into_iter().max().unwrap_or(1))?;
    let urls = servers.urls();
    let load = Load::new(TASKS, if quick { ROUND / 8 } else { ROUND });
    let mut locks = Vec::new();
    for nodes in NODES {
        let lock = Ours::connect(&urls[..nodes]).await?;
        load::run(&lock, &Load::new(TASKS, ROUND / 8)).await?;
        locks.push((lock, Sample::new()?));
    }
    for _ in 0..ROUNDS {
        for (lock, total) in &mut locks {
            total.add_later(&load::run(lock, &load).await?)?;
        }
    }
    let entries = NODES.into_iter().zip(locks);
    Ok(Nodes {
        entries: entries
            .map(|(nodes, (_, sample))| Entry {
                nodes,
                cycles_per_s: sample.cycles_per_second(),
                outcome: sample.outcome(),
            })
            .collect(),
    })
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## More nodes: {}, {TASKS} tasks, a key per task\n",
            Ours::NAME
        )?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("nodes", &|it| it.nodes.to_string()),
            ("cycles/s", &|it| table::rate(it.cycles_per_s)),
            // One to set and one to release, on every node.
            ("commands/s", &|it| {
                table::rate(it.cycles_per_s * 2.0 * it.nodes as f64)
            }),
            ("acquire p50", &|it| table::time(it.outcome.acquire.p50_us)),
            ("p99", &|it| table::time(it.outcome.acquire.p99_us)),
            ("release p50", &|it| table::time(it.outcome.release.p50_us)),
            ("p99", &|it| table::time(it.outcome.release.p99_us)),
        ];
        let table = table::of(&self.entries, columns);
        writeln!(f, "{table}")?;
        for entry in &self.entries {
            let who = format!("{} nodes", entry.nodes);
            entry.outcome.write_failures(f, &who)?;
        }
        Ok(())
    }
}
