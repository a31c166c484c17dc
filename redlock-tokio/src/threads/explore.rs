//! Runs a scenario under many schedules, and replays one of them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
};

/// How many schedules of each scenario are run, half of them of each kind.
const SCHEDULES: usize = 1000;

/// How many times PCT changes a priority during a schedule, plus one.
const PCT_DEPTH: usize = 4;

/// Threads that run in many orders, and what they must lead to in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// The name of its test.
    pub(super) name: &'static str,
    pub(super) run: fn(),
    /// What must happen in some of the schedules: see [`sometimes`].
    pub(super) sometimes: &'static [&'static str],
}

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Random,
    Pct,
}

thread_local! {
    static SEEN: RefCell<BTreeMap<&'static str, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Notes that something happened that happens in some schedules only.
pub(crate) fn sometimes(what: &'static str, happened: bool) {
    if happened {
        SEEN.with_borrow_mut(|seen| *seen.entry(what).or_default() += 1);
    }
}

fn has_seen(what: &str) -> bool {
    SEEN.with_borrow(|seen| seen.contains_key(what))
}

/// Notes which of several threads came first.
#[derive(Clone, Debug, Default)]
pub(super) struct First(Arc<OnceLock<()>>);

impl First {
    pub(super) fn note(&self, what: &'static str) {
        sometimes(what, self.0.set(()).is_ok());
    }
}

/// Explores a scenario: see [`Scenario::explore`].
pub(super) fn explore(name: &'static str, sometimes: &'static [&'static str], run: fn()) {
    let scenario = Scenario {
        name,
        run,
        sometimes,
    };
    scenario.explore();
}

impl Scenario {
    /// Runs as many schedules as `THREADS_SCHEDULES` says, or the one in `THREADS_REPLAY`. Prints the first schedule that
    /// reaches the moment in `THREADS_RECORD`.
    ///
    /// # Panics
    ///
    /// Panics if a schedule fails, or if none of them did what some must do.
    pub(super) fn explore(&self) {
        match env::var("THREADS_REPLAY") {
            Ok(schedule) if !schedule.is_empty() => return self.replay(&schedule),
            _ => {}
        }
        let schedules = number("THREADS_SCHEDULES", SCHEDULES).max(2);
        let seed = number("THREADS_SEED", 0);
        SEEN.take();
        for choice in [Choice::Random, Choice::Pct] {
            if let Err(after) = self.search(choice, seed, schedules / 2) {
                panic!(
                    "{} failed in schedule {after} of {choice:?}, seed {seed}. This command replays the schedule that is \
                     printed above, in one line:\n\n    make threads SCENARIO={} REPLAY=..\n",
                    self.name, self.name,
                );
            }
        }
        let seen = SEEN.take();
        println!("{}: {schedules} schedules, seen {seen:?}", self.name);
        for what in self.sometimes {
            assert!(seen.contains_key(what), "no schedule reached: {what}");
        }
    }

    /// Runs schedules until one fails. Returns the number of that one.
    pub(super) fn search(&self, choice: Choice, seed: u64, schedules: usize) -> Result<(), usize> {
        match choice {
            Choice::Random => self.run(RandomScheduler::new_from_seed(seed, schedules)),
            Choice::Pct => self.run(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules)),
        }
    }

    /// Runs one schedule. A schedule of older code may no longer fit, and then is run as long as it fits.
    ///
    /// # Panics
    ///
    /// Panics if the scenario fails, or if the text is no schedule.
    pub(super) fn replay(&self, schedule: &str) {
        SEEN.take();
        let mut scheduler = ReplayScheduler::new_from_encoded(schedule);
        scheduler.set_allow_incomplete();
        let outcome = self.run(scheduler);
        assert!(outcome.is_ok(), "{} failed as before", self.name);
    }

    /// Runs one schedule that was recorded because of a moment: see [`sometimes`]. If the schedule no longer reaches the
    /// moment, another one must be recorded.
    ///
    /// # Panics
    ///
    /// Panics if the scenario fails, or if the schedule does not reach the moment.
    pub(super) fn replay_up_to(&self, moment: &str, schedule: &str) {
        self.replay(schedule);
        assert!(
            has_seen(moment),
            "the schedule does not reach: {moment}. This command prints another one:\n\n    \
             make threads SCENARIO={} RECORD=\"{moment}\"\n",
            self.name
        );
    }

    /// Runs the schedules of a scheduler. Shuttle prints one that fails. Returns its number.
    fn run(&self, scheduler: impl Scheduler + 'static) -> Result<(), usize> {
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::Print;
        config.silence_warnings = true;
        config
            .ungraceful_shutdown_config
            .immediately_return_on_panic = true;
        let runner = Runner::new(scheduler, config);
        let begun = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&begun);
        let run = self.run;
        let wanted = env::var("THREADS_RECORD").unwrap_or_default();
        let run = move || {
            count.fetch_add(1, Ordering::Relaxed);
            run();
            assert!(!has_seen(&wanted), "this schedule reaches: {wanted}");
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| runner.run(run)));
        outcome.map(drop).map_err(|_| begun.load(Ordering::Relaxed))
    }
}

/// Returns the number in a variable, or the default without that variable.
fn number<T: FromStr>(variable: &str, default: T) -> T {
    match env::var(variable) {
        Ok(text) if !text.is_empty() => match text.parse() {
            Ok(number) => number,
            Err(_) => panic!("{variable} must be a number, and is {text:?}"),
        },
        _ => default,
    }
}
