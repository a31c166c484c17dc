use std::{cell::RefCell, fmt, num::ParseIntError, rc::Rc, str::FromStr};

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// The decisions of one schedule, and how many schedules came before.
///
/// As text: the seed, then the number of each thread that was chosen and how often in a row. `7:0x12.3.0x2` has the
/// seed 7, and runs the first thread for twelve steps, the fourth for one, and the first for two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    schedules: usize,
    all_steps: usize,
    seed: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run(usize),
    /// A random number is drawn.
    Draw,
}

impl Record {
    /// Returns how many schedules were begun.
    pub(in super::super) fn schedules(&self) -> usize {
        self.schedules
    }

    /// Returns how many decisions were made in all schedules.
    pub(in super::super) fn all_steps(&self) -> usize {
        self.all_steps
    }

    pub(super) fn into_schedule(self) -> Schedule {
        let mut schedule = Schedule::new(self.seed);
        for step in self.steps {
            match step {
                Step::Run(task) => schedule.push_task(TaskId::from(task)),
                Step::Draw => schedule.push_random(),
            }
        }
        schedule
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.seed)?;
        for (index, run) in self.steps.chunk_by(|one, next| one == next).enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            match run[0] {
                Step::Run(task) => write!(f, "{task}")?,
                Step::Draw => f.write_str("r")?,
            }
            if run.len() > 1 {
                write!(f, "x{}", run.len())?;
            }
        }
        Ok(())
    }
}

/// The text is no schedule.
#[derive(Debug)]
pub(in super::super) struct NoSchedule;

impl From<ParseIntError> for NoSchedule {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl FromStr for Record {
    type Err = NoSchedule;

    fn from_str(text: &str) -> Result<Self, NoSchedule> {
        let (seed, runs) = text.trim().split_once(':').ok_or(NoSchedule)?;
        let mut record = Self {
            seed: seed.parse()?,
            ..Self::default()
        };
        for run in runs.split('.') {
            let (step, count) = run.split_once('x').unwrap_or((run, "1"));
            let step = match step {
                "r" => Step::Draw,
                task => Step::Run(task.parse()?),
            };
            record
                .steps
                .extend(std::iter::repeat_n(step, count.parse()?));
        }
        Ok(record)
    }
}

/// Notes what another scheduler decides.
#[derive(Debug)]
pub(super) struct Recorder<S> {
    scheduler: S,
    record: Rc<RefCell<Record>>,
}

impl<S> Recorder<S> {
    /// Returns the scheduler, and where it notes the last schedule.
    pub(super) fn new(scheduler: S) -> (Self, Rc<RefCell<Record>>) {
        let record = Rc::<RefCell<Record>>::default();
        let recorder = Self {
            scheduler,
            record: Rc::clone(&record),
        };
        (recorder, record)
    }
}

impl<S: Scheduler> Scheduler for Recorder<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let schedule = self.scheduler.new_execution()?;
        let mut record = self.record.borrow_mut();
        record.schedules += 1;
        record.seed = schedule.seed;
        record.steps.clear();
        Some(schedule)
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let next = self.scheduler.next_task(runnable, current, is_yielding)?;
        let mut record = self.record.borrow_mut();
        record.all_steps += 1;
        record.steps.push(Step::Run(next.into()));
        Some(next)
    }

    fn next_u64(&mut self) -> u64 {
        self.record.borrow_mut().steps.push(Step::Draw);
        self.scheduler.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_can_be_read_again() {
        let text = "7:0x12.3.0x2.r.11";
        let record: Record = text.parse().unwrap();
        assert_eq!(record.steps.len(), 17);
        assert_eq!(record.to_string(), text);
        for wrong in ["", "7", "7:", "x:0", "7:a", "7:0x", "7:0..1"] {
            assert!(wrong.parse::<Record>().is_err(), "{wrong:?}");
        }
    }
}
