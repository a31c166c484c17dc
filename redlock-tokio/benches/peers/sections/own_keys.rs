use std::{fmt, time::Duration};

use redlock_kit::RedisServers;

use crate::{
    Result,
    contestant::Contestant,
    contestants::{self, Ours, Rslock, Sockets},
    load::Load,
    racer::{Entry, race},
    table,
};

pub(crate) const TASKS: [usize; 4] = [1, 8, 64, 256];
/// As many as there are contestants, for each to have been in every place.
const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_millis(300);

/// How many cycles there are where nobody competes: each task has a key of its own.
pub(crate) struct OwnKeys {
    entries: Vec<Entry>,
}

pub(crate) async fn measure(quick: bool) -> Result<OwnKeys> {
    let servers = RedisServers::spawn(5)?;
    let racers = contestants::all(&servers.urls()).await?;
    let round = if quick { ROUND / 6 } else { ROUND };
    for racer in &racers {
        // Connections are opened, scripts loaded, memory is mapped.
        racer.run(&Load::new(8, ROUND / 3)).await?;
    }
    let mut entries = Vec::new();
    for tasks in TASKS {
        entries.extend(race(&racers, &Load::new(tasks, round), ROUNDS).await?);
    }
    Ok(OwnKeys { entries })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index| values.get(index).copied().unwrap_or(f64::NAN);
    let upper = values.len() / 2;
    f64::midpoint(at(upper), at(values.len().saturating_sub(1) - upper))
}

impl OwnKeys {
    /// Returns the contestants' names, in the order in which they were measured.
    pub(crate) fn contestants(&self) -> Vec<&'static str> {
        let of_one = self.entries.iter().filter(|it| it.tasks == TASKS[0]);
        of_one.map(|it| it.contestant).collect()
    }

    /// Returns the median of a contestant's cycles per second.
    pub(crate) fn cycles(&self, contestant: &str, tasks: usize) -> f64 {
        let entry = self.entry(contestant, tasks);
        entry.map_or(f64::NAN, |it| median(it.rounds.clone()))
    }

    /// Returns the median of the rounds' ratios: whatever else the machine did in a round, it did to
    /// both.
    fn ratio(&self, one: &str, other: &str, tasks: usize) -> f64 {
        let rounds = |name| self.entry(name, tasks).map_or(&[][..], |it| &it.rounds);
        let pairs = rounds(one).iter().zip(rounds(other));
        median(pairs.map(|(one, other)| one / other).collect())
    }

    fn entry(&self, contestant: &str, tasks: usize) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|it| it.contestant == contestant && it.tasks == tasks)
    }
}

impl fmt::Display for OwnKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Own keys: five nodes, a key per task\n")?;
        let columns: &[table::Column<'_, Entry>] = &[
            ("contestant", &|it| it.contestant.to_owned()),
            ("tasks", &|it| it.tasks.to_string()),
            ("cycles/s", &|it| table::rate(median(it.rounds.clone()))),
            ("acquire p50", &|it| table::time(it.outcome.acquire.p50_us)),
            ("p99", &|it| table::time(it.outcome.acquire.p99_us)),
            ("release p50", &|it| table::time(it.outcome.release.p50_us)),
            ("p99", &|it| table::time(it.outcome.release.p99_us)),
        ];
        let table = table::of(&self.entries, columns);
        writeln!(f, "{table}\n")?;
        for entry in &self.entries {
            let who = format!("{} with {} tasks", entry.contestant, entry.tasks);
            entry.outcome.write_failures(f, &who)?;
        }
        let mut table = table::new(["ratio of cycles/s", "1 task", "8", "64", "256"]);
        for (label, other) in [
            ("redlock-tokio / rslock", Rslock::NAME),
            ("redlock-tokio / bare sockets", Sockets::NAME),
        ] {
            let ratios = TASKS.map(|tasks| format!("{:.2}", self.ratio(Ours::NAME, other, tasks)));
            table.add_row([label.to_owned()].into_iter().chain(ratios));
        }
        writeln!(f, "{table}")
    }
}
