use std::time::Duration;

use comfy_table::Table;

use crate::{
    Result, contestants::Name, history::History, table, test_bed::TestBed, times::Summary,
    workload::Workload,
};

/// The outcome for one contestant under one workload.
pub(crate) struct Cell {
    contestant: Name,
    workload: Workload,
    entries_per_s: f64,
    /// Those that the end cut off count too.
    wait: Summary,
    entries_per_task: Spread,
    process_share: ProcessShare,
    /// On all nodes together, those that scripts make included.
    commands_per_entry: f64,
    /// The share of the time in which the lock was held.
    busy: f64,
    /// From a holder's leaving to the next one's entry, in whatever process.
    gap: Summary,
    overlaps: usize,
    failures: u64,
    first_failure: Option<String>,
}

struct Spread {
    min: usize,
    median: usize,
    max: usize,
}

impl Cell {
    pub(crate) fn measure(
        bed: &TestBed,
        contestant: Name,
        workload: Workload,
        time: Duration,
    ) -> Result<Self> {
        let (history, commands) = bed.run(contestant, workload, time)?;
        let (failures, first_failure) = history.failures();
        Ok(Self {
            contestant,
            workload,
            entries_per_s: history.entries_per_s(),
            wait: history.waits()?.summary(),
            entries_per_task: Spread::of(history.entries_of_tasks()),
            process_share: ProcessShare::of(&history),
            commands_per_entry: commands / history.entries() as f64,
            busy: history.busy(),
            gap: history.gaps()?.summary(),
            overlaps: history.overlaps(),
            failures,
            first_failure,
        })
    }

    pub(crate) fn table(cells: &[Self], round_trip_us: f64) -> Table {
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        let columns: &[table::Column<'_, Self>] = &[
            ("contestant", &|it| it.contestant.to_string()),
            ("tasks", &|it| it.workload.tasks.to_string()),
            ("entries/s", &|it| table::whole(it.entries_per_s)),
            ("wait p50", &|it| table::time(it.wait.p50_us)),
            ("p99", &|it| table::time(it.wait.p99_us)),
            ("max", &|it| table::time(it.wait.max_us)),
            ("entries per task: min", &|it| {
                it.entries_per_task.min.to_string()
            }),
            ("median", &|it| it.entries_per_task.median.to_string()),
            ("max", &|it| it.entries_per_task.max.to_string()),
            ("max/min", &|it| {
                let Spread { min, max, .. } = it.entries_per_task;
                table::ratio(max as f64, min as f64)
            }),
            ("process share, min / max", &|it| {
                let ProcessShare { least, most } = it.process_share;
                format!("{} / {} %", percent(least), percent(most))
            }),
            ("commands per entry", &|it| {
                table::whole(it.commands_per_entry)
            }),
            ("busy", &|it| table::percent(it.busy)),
            ("gap p50 (round trips)", &|it| {
                let round_trips = it.gap.p50_us / round_trip_us;
                format!("{} ({round_trips:.1})", table::time(it.gap.p50_us))
            }),
            ("p99", &|it| table::time(it.gap.p99_us)),
        ];
        table::of(cells, columns)
    }

    /// Returns the faults of the cell, in words.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let who = format!("{} with {}", self.contestant, self.workload);
        let mut complaints = Vec::new();
        if self.overlaps > 0 {
            complaints.push(format!("{who}: {} holds overlap", self.overlaps));
        }
        if let Some(first) = &self.first_failure {
            complaints.push(format!(
                "{who}: {} failures, the first: {first}",
                self.failures
            ));
        }
        complaints
    }
}

/// The shares of all entries that the least and the most successful process had.
#[derive(Clone, Copy)]
struct ProcessShare {
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut values: Vec<usize>) -> Self {
        values.sort_unstable();
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        Self {
            min: at(0),
            median: at(values.len() / 2),
            max: at(values.len().saturating_sub(1)),
        }
    }
}

impl ProcessShare {
    fn of(history: &History) -> Self {
        let spread = Spread::of(history.entries_of_processes());
        let entries = history.entries().max(1) as f64;
        Self {
            least: spread.min as f64 / entries,
            most: spread.max as f64 / entries,
        }
    }
}
