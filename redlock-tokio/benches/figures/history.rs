use std::{fmt, ops::Range, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::times::{Summary, Times};

/// One stay in the critical section, in nanoseconds of the clock that all processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) asked: u64,
    /// After the lock was given to its holder.
    pub(crate) entered: u64,
    /// Before the holder gave it back.
    pub(crate) left: u64,
    /// After that. Scripts do not report it.
    #[serde(default)]
    pub(crate) released: u64,
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

/// The events of all tasks of all processes within a window of time.
pub(crate) struct History {
    window: Range<u64>,
    processes: Vec<Vec<TaskHistory>>,
    /// All stays, by when they began.
    holds: Vec<Hold>,
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds: a time that one process reads before another one reads the clock is never
/// the greater.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Nothing if it ends before it begins.
pub(crate) fn time(range: Range<u64>) -> Duration {
    Duration::from_nanos(range.end.saturating_sub(range.start))
}

impl TaskHistory {
    pub(crate) fn fail(&mut self, reason: impl fmt::Display) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| reason.to_string());
    }
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
        time(self.window.clone()).as_secs_f64()
    }

    /// All stays, by when they began, in or after the window.
    pub(crate) fn holds(&self) -> &[Hold] {
        &self.holds
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

    pub(crate) fn entries(&self) -> usize {
        self.entries_of(&self.holds)
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
    pub(crate) fn waits(&self) -> Summary {
        let mut waits = Times::default();
        let ended = self.holds.iter().map(|hold| (hold.asked, hold.entered));
        let tasks = self.processes.iter().flatten();
        let unended = tasks.filter_map(|task| Some((task.waiting_since?, u64::MAX)));
        for (asked, entered) in ended.chain(unended) {
            if self.window.contains(&asked) {
                waits.record(time(asked..entered.min(self.window.end)));
            }
        }
        waits.summary()
    }

    /// How long they took to give the lock back.
    pub(crate) fn releases(&self) -> Summary {
        let mut releases = Times::default();
        for hold in &self.holds {
            releases.record(time(hold.left..hold.released));
        }
        releases.summary()
    }

    /// How long the first wait of all lasted, if it has ended.
    pub(crate) fn first_wait(&self) -> Option<Duration> {
        let first = self.holds.iter().min_by_key(|hold| hold.asked)?;
        Some(time(first.asked..first.entered))
    }

    /// How long each would wait if all were served in the order in which they come: the holds of all others.
    pub(crate) fn wait_in_order(&self) -> Duration {
        let count = u32::try_from(self.holds.len()).unwrap_or(u32::MAX).max(1);
        let holds = self.holds.iter().map(|hold| time(hold.entered..hold.left));
        let tasks: usize = self.processes.iter().map(Vec::len).sum();
        (holds.sum::<Duration>() / count).mul_f64(tasks.saturating_sub(1) as f64)
    }

    /// The longest time in which nobody entered.
    pub(crate) fn longest_without_entry(&self) -> Duration {
        self.longest_gap(&self.holds)
    }

    /// The longest time in which a process did not get in once, for the one to which that happened.
    pub(crate) fn longest_shut_out(&self) -> Duration {
        let of_one =
            |tasks: &Vec<TaskHistory>| self.longest_gap(tasks.iter().flat_map(|it| &it.holds));
        self.processes.iter().map(of_one).max().unwrap_or_default()
    }

    /// The share of the window in which somebody was in.
    pub(crate) fn busy(&self) -> f64 {
        let Range { start, end } = self.window;
        let inside = |hold: &Hold| time(hold.entered.max(start)..hold.left.min(end)).as_secs_f64();
        self.holds.iter().map(inside).sum::<f64>() / self.seconds()
    }

    /// How often something failed, and one of the first failures.
    pub(crate) fn failure(&self) -> Option<String> {
        let tasks = || self.processes.iter().flatten();
        let first = tasks().find_map(|task| task.first_failure.as_ref())?;
        let failures: u64 = tasks().map(|task| task.failures).sum();
        Some(format!("{failures} failures, the first: {first}"))
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
