//! A seeded, deterministic simulator: the real [`redlock_core::Lease`] against masters, networks
//! and clocks that go wrong, hours of virtual time in a second.
//!
//! ```text
//! make sim SEEDS=1000
//! SIM_SEED=42 SIM_CONFIG=within-fifo SIM_TRACE=1 cargo test -p redlock-core --release --test sim -- --nocapture
//! ```
//!
//! `SIM_SEEDS` is how many seeds each world within the assumptions gets (the others get a tenth),
//! `SIM_SEED` runs one seed only, `SIM_CONFIG` one world only, `SIM_TRACE` prints what happens.
//! Each seed is run twice and must leave the same trace.

mod authority;
mod client;
mod clock;
mod configuration;
mod contention;
mod events;
mod faults;
mod history;
mod lane;
mod master;
mod network;
mod owner;
mod report;
mod rng;
mod seen;
mod trace;
mod world;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use configuration::{CONFIGURATIONS, Configuration, Expectation};
use contention::Crowd;
use report::Summary;
use seen::{Seen, Tally};
use world::{Outcome, World};

/// So many that every situation is reached, so few that a debug build takes seconds.
const DEFAULT_SEEDS: u64 = 3;

/// The worlds in which violations are expected need fewer.
const FEWEST_SEEDS: u64 = 4;

#[test]
fn two_clients_never_hold_a_lock_at_once() {
    let plan = Plan::from_env();
    let mut summaries = Vec::new();
    for configuration in CONFIGURATIONS {
        if plan
            .only
            .as_deref()
            .is_none_or(|it| it == configuration.name)
        {
            summaries.push(plan.simulate(*configuration));
        }
    }
    assert!(!summaries.is_empty(), "SIM_CONFIG names no configuration");
    report::print(&summaries);
    if plan.seed.is_none() && plan.seeds >= DEFAULT_SEEDS {
        assert_conclusive(&summaries);
    }
}

#[test]
fn another_seed_is_another_run() {
    let run = |seed| World::new(CONFIGURATIONS[0], seed, false).run();
    assert_ne!(run(0).hash, run(1).hash);
}

#[test]
fn a_wait_sees_a_bounded_number_of_turns_of_others() {
    let plan = Plan::from_env();
    let seeds = plan.seed.map_or(0..plan.seeds, |seed| seed..seed + 1);
    for seed in seeds {
        for clients in [2, 4, 8] {
            let crowd = Crowd::for_one_key(clients);
            let waits = contention::run(crowd, seed);
            let most = contention::MOST_TURNS_OF_EACH * crowd.others();
            assert!(
                waits.turns <= most && waits.overlaps == 0,
                "\n{clients} clients, at most {most} turns: {waits:?}\nreplay: SIM_SEED={seed}"
            );
        }
    }
}

/// Some clients that want four keys, beside others that want one of them each.
fn busy_keys(gathers: bool) -> [Crowd; 2] {
    [(1, 16), (4, 8)].map(|(several, single)| Crowd {
        keys: 4,
        several,
        single,
        gathers,
    })
}

#[test]
fn a_wait_for_several_keys_sees_a_bounded_number_of_turns_of_others() {
    let plan = Plan::from_env();
    let seeds = plan.seed.map_or(0..plan.seeds, |seed| seed..seed + 1);
    for seed in seeds {
        for crowd in busy_keys(true) {
            let waits = contention::run(crowd, seed);
            let most = contention::MOST_TURNS_BESIDE_SEVERAL * crowd.others();
            assert!(
                waits.turns <= most && waits.overlaps == 0,
                "\n{crowd:?}, at most {most} turns: {waits:?}\nreplay: SIM_SEED={seed}"
            );
        }
    }
}

#[test]
fn a_wait_for_several_keys_that_are_not_gathered_sees_more_turns_of_others() {
    for crowd in busy_keys(false) {
        let waits = contention::run(crowd, 0);
        let most = contention::MOST_TURNS_BESIDE_SEVERAL * crowd.others();
        assert!(waits.turns > most, "{crowd:?}: {waits:?}");
    }
}

/// Asserts that the runs have tested something: one seed alone need not, this many must.
fn assert_conclusive(summaries: &[Summary]) {
    let mut within = Tally::new();
    for summary in summaries {
        let name = summary.configuration.name;
        match summary.configuration.expectation {
            Expectation::Safe => within += &summary.seen,
            Expectation::Violated => {
                assert!(summary.violations > 0, "{name}: the checker saw nothing");
            }
        }
    }
    // Those two belong to the worlds beyond the assumptions.
    let excluded = [Seen::ClockStep, Seen::Flush];
    for &(what, name) in Seen::ALL {
        let reached = within.get(what) > 0 || within == Tally::new();
        assert!(reached || excluded.contains(&what), "never seen: {name}");
    }
}

/// What the environment asks for.
struct Plan {
    seeds: u64,
    seed: Option<u64>,
    only: Option<String>,
    print: bool,
}

impl Plan {
    fn from_env() -> Self {
        let number = |name| {
            let text = env::var(name).ok()?;
            Some(
                text.parse()
                    .unwrap_or_else(|_| panic!("{name}={text} is no number")),
            )
        };
        Self {
            seeds: number("SIM_SEEDS").unwrap_or(DEFAULT_SEEDS).max(1),
            seed: number("SIM_SEED"),
            only: env::var("SIM_CONFIG").ok(),
            print: env::var("SIM_TRACE").is_ok(),
        }
    }

    /// Runs all seeds of one configuration, each twice, on as many threads as there are cores.
    fn simulate(&self, configuration: Configuration) -> Summary {
        let seeds = match (self.seed, configuration.expectation) {
            (Some(seed), _) => seed..seed + 1,
            (None, Expectation::Safe) => 0..self.seeds,
            (None, Expectation::Violated) => 0..(self.seeds / 10).max(FEWEST_SEEDS),
        };
        let start = Instant::now();
        let next = AtomicU64::new(seeds.start);
        let failed = AtomicBool::new(false);
        let outcomes = Mutex::new(Vec::new());
        let work = || {
            let mut told = Instant::now();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end || failed.load(Ordering::Relaxed) {
                    break;
                }
                let outcome = self.run_twice(configuration, seed);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                // No code panics while it holds the lock.
                outcomes.lock().expect("not poisoned").push((seed, outcome));
                if told.elapsed() > Duration::from_secs(10) {
                    told = Instant::now();
                    println!("{}: seed {seed} of {}", configuration.name, seeds.end);
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let mut outcomes = outcomes.into_inner().expect("not poisoned");
        outcomes.sort_by_key(|(seed, _)| *seed);
        let mut summary = Summary::new(configuration);
        for (seed, outcome) in outcomes {
            match outcome {
                Ok(outcome) => summary.add(seed, &outcome),
                Err(failure) => panic!("{failure}; replay: {}", replay(configuration, seed)),
            }
        }
        summary.finish(start.elapsed());
        summary
    }

    fn run_twice(&self, configuration: Configuration, seed: u64) -> Result<Outcome, String> {
        let run = |print| {
            let world = || World::new(configuration, seed, print).run();
            // A panic of the machines must name its seed too.
            catch_unwind(AssertUnwindSafe(world)).map_err(|_| "the machines panicked".to_owned())
        };
        let first = run(self.print)?;
        if let Some(failure) = first.failure {
            return Err(failure);
        }
        let second = run(false)?;
        if first == second {
            Ok(first)
        } else {
            Err("two runs of one seed differ".to_owned())
        }
    }
}

fn replay(configuration: Configuration, seed: u64) -> String {
    format!(
        "SIM_SEED={seed} SIM_CONFIG={} cargo test -p redlock-core --release --test sim -- --nocapture",
        configuration.name
    )
}
