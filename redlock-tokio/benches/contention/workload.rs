use std::{fmt, time::Duration};

/// The workers that want the key, and how long they hold it.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) processes: usize,
    /// Of all processes together.
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
}

impl Workload {
    const TASKS: [usize; 3] = [8, 32, 128];
    const PROCESSES: [usize; 2] = [1, 4];
    const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

    /// Returns the workloads in groups that differ in the number of tasks only.
    pub(crate) fn groups() -> impl Iterator<Item = [Self; 3]> {
        Self::PROCESSES.into_iter().flat_map(|processes| {
            Self::HOLDS.into_iter().map(move |hold| {
                Self::TASKS.map(|tasks| Self {
                    processes,
                    tasks,
                    hold,
                })
            })
        })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processes,
            tasks,
            hold,
        } = self;
        let s = if *processes == 1 { "" } else { "es" };
        write!(
            f,
            "{tasks} tasks in {processes} process{s}, hold {} ms",
            hold.as_millis()
        )
    }
}
