//! Runs a scenario under many schedules, and replays one of them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
};

/// How many schedules of each scenario are run, half of them of each kind.
const SCHEDULES: usize = 1000;

/// How many times PCT changes a priority during a schedule, plus one.
const PCT_DEPTH: usize = 4;

thread_local! {
    static SEEN: RefCell<BTreeMap<&'static str, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Notes that something happened that happens in some schedules only.
pub(super) fn sometimes(what: &'static str, happened: bool) {
    if happened {
        SEEN.with_borrow_mut(|seen| *seen.entry(what).or_default() += 1);
    }
}

/// Runs as many schedules of threads as `THREADS_SCHEDULES` says, or the one in `THREADS_REPLAY`. Panics if a schedule fails, or
/// if none of them [reached](sometimes) what some must.
pub(super) fn explore(reached: &[&str], scenario: fn()) {
    if let Some(schedule) = variable("THREADS_REPLAY") {
        let mut scheduler = ReplayScheduler::new_from_encoded(&schedule);
        scheduler.set_allow_incomplete();
        assert!(run(scheduler, scenario).is_ok(), "it failed as before");
        return;
    }
    SEEN.take();
    let thread = thread::current();
    let name = thread.name().unwrap_or("?"); // the test
    let schedules = number("THREADS_SCHEDULES").unwrap_or(SCHEDULES).max(2);
    let (seed, half) = (number("THREADS_SEED").unwrap_or(0), schedules / 2);
    let random = run(RandomScheduler::new_from_seed(seed as u64, half), scenario);
    let pct = PctScheduler::new_from_seed(seed as u64, PCT_DEPTH, half);
    if let Err(after) = random.and_then(|()| run(pct, scenario)) {
        panic!(
            "{name} failed in schedule {after} of its kind, seed {seed}. This command replays the schedule that is \
             printed above, in one line:\n\n    make threads SCENARIO={name} REPLAY=..\n",
        );
    }
    let seen = SEEN.take();
    println!("{name}: {schedules} schedules, seen {seen:?}");
    for what in reached {
        assert!(seen.contains_key(what), "no schedule reached: {what}");
    }
}

/// Runs the schedules of a scheduler. Shuttle prints one that fails. Returns its number.
fn run(scheduler: impl Scheduler + 'static, scenario: fn()) -> Result<(), usize> {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::Print;
    config.silence_warnings = true;
    let shutdown = &mut config.ungraceful_shutdown_config;
    shutdown.immediately_return_on_panic = true;
    let runner = Runner::new(scheduler, config);
    let begun = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&begun);
    let run = move || {
        count.fetch_add(1, Ordering::Relaxed);
        scenario();
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| runner.run(run)));
    outcome.map(drop).map_err(|_| begun.load(Ordering::Relaxed))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<usize> {
    let number = |value: String| value.parse().ok();
    variable(name).map(|it| number(it).unwrap_or_else(|| panic!("{name} must be a number")))
}
