//! What the environment asks for, and how it is carried out.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    configuration::Configuration,
    reduction::{Reduction, shrink},
    report::Summary,
    violation::Kind,
    world::{Outcome, World},
};

/// How many seeds a world gets if nothing is said, as in all tests of the workspace, which are not optimized.
const DEFAULT_SEEDS: u64 = 1;

/// What is to be simulated.
pub(crate) struct Plan {
    /// `None` if nothing is said.
    seeds: Option<u64>,
    /// The first of them.
    from: u64,
    seed: Option<u64>,
    only: Option<String>,
    print: bool,
    /// How often each seed is run.
    runs: u32,
    /// Whether a failure is made smaller.
    shrinks: bool,
    reduction: Reduction,
}

impl Plan {
    pub(crate) fn from_env() -> Self {
        let faults = env::var("SIM_FAULTS").ok().map(|text| {
            let numbers = text.split(',').filter(|it| !it.is_empty());
            numbers
                .map(|it| parse("SIM_FAULTS", it))
                .collect::<BTreeSet<u32>>()
        });
        Self {
            seeds: number("SIM_SEEDS"),
            from: number("SIM_FROM").unwrap_or(0),
            seed: number("SIM_SEED"),
            only: env::var("SIM_CONFIG").ok(),
            print: env::var("SIM_TRACE").is_ok(),
            runs: number("SIM_RUNS").unwrap_or(2).max(1),
            shrinks: env::var("SIM_UNSHRUNK").is_err(),
            reduction: Reduction { faults },
        }
    }

    /// Returns whether a world is to be simulated.
    pub(crate) fn includes(&self, configuration: &Configuration) -> bool {
        let is_asked_for = self.seeds.is_some() || self.seed.is_some();
        match self.only.as_deref() {
            Some(only) => only.split(',').any(|it| it == configuration.name),
            None => is_asked_for || configuration.is_safe(),
        }
    }

    /// Panics unless there are all worlds that are asked for.
    pub(crate) fn assert_known<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let names: Vec<_> = names.collect();
        let mut chosen = self.only.iter().flat_map(|it| it.split(','));
        let unknown = chosen.find(|it| !names.contains(it));
        assert_eq!(unknown, None, "there are {names:?}");
    }

    /// Returns whether so many seeds are run that every situation must be reached.
    pub(crate) fn is_conclusive(&self, seeds: u64) -> bool {
        let is_whole = self.seed.is_none() && self.only.is_none() && self.from == 0;
        is_whole && self.seeds() >= seeds && self.reduction == Reduction::none()
    }

    /// Returns whether the seeds are those in which the violation of a world is found.
    fn must_find(&self, configuration: &Configuration) -> bool {
        let seeds = self.range(configuration);
        seeds.start == 0
            && seeds.end >= configuration.found_in
            && self.reduction == Reduction::none()
    }

    /// Runs all seeds of these worlds, one world after the other, on as many threads as there are cores.
    ///
    /// # Panics
    ///
    /// If a run violates what its world promises, if no run shows the violation that a world must show, or if two runs
    /// of a seed differ.
    pub(crate) fn simulate(&self, configurations: Vec<Configuration>) -> Vec<Summary> {
        let mut worlds: Vec<_> = configurations
            .into_iter()
            .map(|it| (Summary::new(it), AtomicBool::new(false)))
            .collect();
        let seeds = worlds.iter().enumerate();
        let runs: Vec<_> = seeds
            .flat_map(|(index, (it, _))| {
                self.range(&it.configuration).map(move |seed| (index, seed))
            })
            .collect();
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(BTreeMap::new());
        let work = || {
            let mut told = Instant::now();
            while let Some(&(index, seed)) = runs.get(next.fetch_add(1, Relaxed)) {
                let (Summary { configuration, .. }, is_over) = &worlds[index];
                if is_over.load(Relaxed) {
                    continue;
                }
                let outcome = self.repeat(*configuration, seed);
                match (&outcome, configuration.violations) {
                    (Ok(outcome), [first, ..]) => {
                        is_over.fetch_or(configuration.is_rare && outcome.has(*first), Relaxed);
                    }
                    (Ok(_), []) => {}
                    (Err(_), _) => next.store(runs.len(), Relaxed),
                }
                let mut outcomes = outcomes.lock().expect("not poisoned");
                outcomes.insert((index, seed), outcome);
                if told.elapsed() > Duration::from_secs(10) {
                    told = Instant::now();
                    println!(
                        "{}: seed {seed}; {} of {} runs",
                        configuration.name,
                        outcomes.len(),
                        runs.len()
                    );
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        for ((index, seed), outcome) in outcomes.into_inner().expect("not poisoned") {
            match outcome {
                Ok(outcome) => worlds[index].0.add(seed, &outcome),
                Err(failure) => panic!("{failure}"),
            }
        }
        let summaries: Vec<_> = worlds.into_iter().map(|(it, _)| it).collect();
        for it in &summaries {
            if let [first, ..] = it.configuration.violations
                && self.must_find(&it.configuration)
            {
                let (name, is_found) = (it.configuration.name, it.kinds.contains_key(first));
                assert!(is_found, "{name}: the judge has not seen: {first:?}");
            }
        }
        summaries
    }

    fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(DEFAULT_SEEDS).max(1)
    }

    fn range(&self, configuration: &Configuration) -> Range<u64> {
        let seeds = match self.seed {
            Some(seed) => return seed..seed + 1,
            None if configuration.is_safe() => self.seeds(),
            None => (self.seeds() / 10).max(configuration.found_in),
        };
        self.from..self.from + seeds
    }

    /// Runs a seed as often as asked, at the same time, and expects the same each time.
    fn repeat(&self, configuration: Configuration, seed: u64) -> Result<Outcome, String> {
        let again = || run(configuration, seed, &self.reduction, false);
        let (first, others) = thread::scope(|scope| {
            let others: Vec<_> = (1..self.runs).map(|_| scope.spawn(again)).collect();
            let first = run(configuration, seed, &self.reduction, self.print);
            let others = others
                .into_iter()
                .map(|it| it.join().expect("a panic is an outcome"));
            (first, others.collect::<Vec<_>>())
        });
        if self.seed.is_some() {
            for outcome in std::iter::once(&first).chain(&others) {
                let hash = outcome.hash;
                println!("{}: seed {seed}, trace {hash:016x}", configuration.name);
            }
        }
        let mut violations = first.violations.iter();
        if let Some(violation) = violations.find(|it| !configuration.violations.contains(&it.kind))
        {
            println!("{}: seed {seed}: {violation}", configuration.name);
            let smaller = self.smaller(configuration, seed, &first, violation.kind);
            let replay = replay(configuration, seed, &smaller);
            return Err(format!("{violation}\nreplay: {replay}"));
        }
        if others.iter().any(|it| *it != first) {
            let replay = replay(configuration, seed, &self.reduction);
            return Err(format!("two runs of one seed differ\nreplay: {replay}"));
        }
        Ok(first)
    }

    /// Returns a small reduction with which the run still shows a violation of this kind.
    fn smaller(
        &self,
        configuration: Configuration,
        seed: u64,
        failure: &Outcome,
        kind: Kind,
    ) -> Reduction {
        if !self.shrinks {
            return self.reduction.clone();
        }
        shrink(&self.reduction, failure, kind, |reduction| {
            run(configuration, seed, reduction, false)
        })
    }
}

/// Runs a world once. A panic of the world is a violation, and must name its seed too.
fn run(configuration: Configuration, seed: u64, reduction: &Reduction, print: bool) -> Outcome {
    let world = || World::new(configuration, seed, reduction, print).run();
    catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|_| Outcome::of_panic())
}

/// Returns the command that runs this seed again.
pub(crate) fn replay(configuration: Configuration, seed: u64, reduction: &Reduction) -> String {
    format!(
        "SIM_SEED={seed} SIM_CONFIG={}{reduction} \
         cargo test --release -p redlock-tokio --all-features --test sim -- --nocapture",
        configuration.name
    )
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok().map(|text| parse(name, &text))
}

fn parse<T: FromStr>(name: &str, text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("{name}={text} is no number"))
}
