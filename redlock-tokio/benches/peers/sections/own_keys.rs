use std::{fmt, time::Duration};

use redlock_kit::RedisServers;

use crate::{
    Result,
    race::{Entry, Racer, Sample, race},
    shared::{
        contestants::{Contestant, Dropped, Ours, Plain, PoolGet, Rslock, Sockets},
        table,
    },
};

const TASKS: [usize; 4] = [1, 8, 64, 256];
/// As many as there are contestants, for each to have been in every place.
const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_millis(300);

/// How many cycles there are where nobody competes: each task has a key of its own.
pub(crate) struct OwnKeys(Vec<Entry>);

pub(crate) async fn measure(quick: bool) -> Result<OwnKeys> {
    let servers = RedisServers::spawn(5)?;
    let urls = servers.urls();
    let ours = Ours::connect(&urls).await?;
    let racers: [Box<dyn Racer>; 6] = [
        Box::new(Sockets::connect(&urls).await?),
        Box::new(Plain::connect(&urls).await?),
        Box::new(Rslock::connect(&urls).await?),
        Box::new(PoolGet::connect(&urls).await?),
        Box::new(Dropped(ours.clone())),
        Box::new(ours),
    ];
    let round = if quick { ROUND / 6 } else { ROUND };
    for racer in &racers {
        // Connections are opened, scripts loaded, memory is mapped.
        racer.run(8, ROUND / 3, &mut Sample::default()).await?;
    }
    let mut entries = Vec::new();
    for tasks in TASKS {
        entries.extend(race(&racers, tasks, round, ROUNDS).await?);
    }
    Ok(OwnKeys(entries))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index| values.get(index).copied().unwrap_or(f64::NAN);
    let upper = values.len() / 2;
    f64::midpoint(at(upper), at(values.len().saturating_sub(1) - upper))
}

impl OwnKeys {
    /// Returns the median of the rounds' ratios of our cycles to those of another: whatever else the machine did in a
    /// round, it did to both.
    fn ratio(&self, other: &str, tasks: usize) -> f64 {
        let rounds = |name| self.rounds(name, tasks).iter();
        let pairs = rounds(Ours::NAME).zip(rounds(other));
        median(pairs.map(|(ours, other)| ours / other).collect())
    }

    fn rounds(&self, contestant: &str, tasks: usize) -> &[f64] {
        let is_asked = |it: &&Entry| it.contestant == contestant && it.tasks == tasks;
        let entry = self.0.iter().find(is_asked);
        entry.map_or(&[], |it| &it.rounds)
    }
}

impl fmt::Display for OwnKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Own keys: five nodes, a key per task\n")?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("contestant", &|it| it.contestant.to_owned()),
            ("tasks", &|it| it.tasks.to_string()),
            ("cycles/s", &|it| table::rate(median(it.rounds.clone()))),
            ("acquire p50", &|it| table::time(it.sample.acquire().p50_us)),
            ("p99", &|it| table::time(it.sample.acquire().p99_us)),
            ("release p50", &|it| table::time(it.sample.release().p50_us)),
            ("p99", &|it| table::time(it.sample.release().p99_us)),
        ];
        writeln!(f, "{}\n", table::of(&self.0, columns))?;
        for entry in &self.0 {
            let who = format!("{} with {} tasks", entry.contestant, entry.tasks);
            entry.sample.write_failures(f, &who)?;
        }
        let mut table = table::new(["ratio of cycles/s", "1 task", "8", "64", "256"]);
        for (label, other) in [
            ("redlock-tokio / rslock", Rslock::NAME),
            ("redlock-tokio / bare sockets", Sockets::NAME),
        ] {
            let ratios = TASKS.map(|tasks| format!("{:.2}", self.ratio(other, tasks)));
            table.add_row([label.to_owned()].into_iter().chain(ratios));
        }
        writeln!(f, "{table}")
    }
}
