use std::{fmt, ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Result, times::Times};

/// One stay in the critical section, in nanoseconds of the shared clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) asked: u64,
    /// After the lock was given to its holder.
    pub(crate) entered: u64,
    /// Before the holder gave it back.
    pub(crate) left: u64,
}

/// The events of one task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TaskHistory {
    pub(crate) holds: Vec<Hold>,
    /// Since when it waited at the end, if it did.
    pub(crate) waiting_since: Option<u64>,
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
}

impl TaskHistory {
    pub(crate) fn fail(&mut self, reason: impl fmt::Display) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| reason.to_string());
    }
}

/// The events of all tasks of all processes within a window of time.
pub(crate) struct History {
    window: Range<u64>,
    processes: Vec<Vec<TaskHistory>>,
    /// All stays, by when they began.
    holds: Vec<Hold>,
}

impl History {
    pub(crate) fn new(processes: Vec<Vec<TaskHistory>>, window: Range<u64>) -> Self {
        let tasks = processes.iter().flatten();
        let mut holds: Vec<_> = tasks.flat_map(|task| task.holds.iter().copied()).collect();
        holds.sort_unstable_by_key(|hold| hold.entered);
        Self {
            window,
            processes,
            holds,
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.window.end - self.window.start) as f64 / 1e9
    }

    /// How many holds there were, in or after the window.
    pub(crate) fn holds(&self) -> usize {
        self.holds.len()
    }

    /// How often a task entered before another one had left, in or after the window.
    pub(crate) fn overlaps(&self) -> usize {
        let mut all_left = 0;
        let overlaps = self.holds.iter().filter(|hold| {
            let overlaps = hold.entered < all_left;
            all_left = all_left.max(hold.left);
            overlaps
        });
        overlaps.count()
    }

    /// How many were in at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        let mut left: Vec<_> = self.holds.iter().map(|hold| hold.left).collect();
        left.sort_unstable();
        let inside = self.holds.iter().enumerate().map(|(before, hold)| {
            let gone = left.partition_point(|left| *left <= hold.entered);
            (before + 1).saturating_sub(gone)
        });
        inside.max().unwrap_or_default()
    }

    /// The longest time in which nobody entered.
    pub(crate) fn longest_without_entry(&self) -> Duration {
        self.longest_gap(&self.holds)
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries_of(&self.holds)
    }

    pub(crate) fn entries_per_s(&self) -> f64 {
        self.entries() as f64 / self.seconds()
    }

    pub(crate) fn entries_of_tasks(&self) -> Vec<usize> {
        let tasks = self.processes.iter().flatten();
        tasks.map(|task| self.entries_of(&task.holds)).collect()
    }

    pub(crate) fn entries_of_processes(&self) -> Vec<usize> {
        let of_one = |tasks: &Vec<TaskHistory>| {
            let entries = tasks.iter().map(|task| self.entries_of(&task.holds));
            entries.sum()
        };
        self.processes.iter().map(of_one).collect()
    }

    /// How long they waited. A task that still waits at the end counts with what it has waited so far:
    /// otherwise the longest waits would be missing.
    pub(crate) fn waits(&self) -> Result<Times> {
        let mut waits = Times::new()?;
        let ended = self.holds.iter().map(|hold| (hold.asked, hold.entered));
        let tasks = self.processes.iter().flatten();
        let unended = tasks.filter_map(|task| Some((task.waiting_since?, u64::MAX)));
        for (asked, entered) in ended.chain(unended) {
            if self.window.contains(&asked) {
                waits.record(time(asked..entered.min(self.window.end)));
            }
        }
        Ok(waits)
    }

    /// The times between one hold and the next.
    pub(crate) fn gaps(&self) -> Result<Times> {
        let mut gaps = Times::new()?;
        for pair in self.holds.windows(2) {
            if self.window.contains(&pair[1].entered) {
                gaps.record(time(pair[0].left..pair[1].entered));
            }
        }
        Ok(gaps)
    }

    /// The longest time in which a process did not get in once, for the one to which that happened.
    pub(crate) fn longest_shut_out(&self) -> Duration {
        let of_one =
            |tasks: &Vec<TaskHistory>| self.longest_gap(tasks.iter().flat_map(|it| &it.holds));
        self.processes.iter().map(of_one).max().unwrap_or_default()
    }

    /// How long a hold lasted, on average.
    pub(crate) fn mean_hold(&self) -> Duration {
        let count = u32::try_from(self.holds.len()).unwrap_or(u32::MAX).max(1);
        let holds = self.holds.iter().map(|hold| time(hold.entered..hold.left));
        holds.sum::<Duration>() / count
    }

    /// How many tasks there are.
    pub(crate) fn tasks(&self) -> usize {
        self.processes.iter().map(Vec::len).sum()
    }

    /// The share of the window in which somebody was in.
    pub(crate) fn busy(&self) -> f64 {
        let Range { start, end } = self.window;
        let inside = |hold: &Hold| time(hold.entered.max(start)..hold.left.min(end)).as_secs_f64();
        self.holds.iter().map(inside).sum::<f64>() / self.seconds()
    }

    /// The number of failures of all tasks, and one of the first failures.
    pub(crate) fn failures(&self) -> (u64, Option<String>) {
        let tasks = || self.processes.iter().flatten();
        let first = tasks().find_map(|task| task.first_failure.clone());
        (tasks().map(|task| task.failures).sum(), first)
    }

    /// The longest time in which none of these began.
    fn longest_gap<'a>(&self, holds: impl IntoIterator<Item = &'a Hold>) -> Duration {
        let Range { start, end } = self.window;
        let entered = holds.into_iter().map(|hold| hold.entered.clamp(start, end));
        let mut times: Vec<_> = entered.chain([start, end]).collect();
        times.sort_unstable();
        let gaps = times.windows(2).map(|pair| time(pair[0]..pair[1]));
        gaps.max().unwrap_or_default()
    }

    fn entries_of(&self, holds: &[Hold]) -> usize {
        let entered = holds.iter().map(|hold| hold.entered);
        entered.filter(|it| self.window.contains(it)).count()
    }
}

/// Nothing if it ends before it begins.
fn time(range: Range<u64>) -> Duration {
    Duration::from_nanos(range.end.saturating_sub(range.start))
}
