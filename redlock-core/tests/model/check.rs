//! Explores one configuration, and says whether what was found is as it should be.

use std::{
    collections::HashMap, fmt::Debug, hash::Hash, io, iter, sync::Mutex, thread, time::Instant,
};

use stateright::{Checker, CheckerBuilder, Expectation, HasDiscoveries, Model, Path};

/// A configuration that can be explored.
pub(crate) trait Checked:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + PartialEq + Send + Sync,
    > + Clone
    + Send
    + Sync
    + 'static
{
    /// What the labels of all these configurations begin with.
    const PREFIX: &'static str = "";

    /// The name in `PROOF.md`.
    fn name(&self) -> &'static str;

    /// The property that must be violated, in a negative control.
    fn violates(&self) -> Option<&'static str>;

    /// The name in the output. What is left out in a negative control is marked.
    fn label(&self) -> String {
        let not = self.violates().map_or("", |_| "NOT: ");
        format!("{}{not}{}", Self::PREFIX, self.name())
    }

    /// Describes a step of a counterexample.
    fn describe(world: &Self::State, step: Self::Action) -> String;

    /// Describes the world at the end of a counterexample.
    fn describe_end(world: &Self::State) -> String;
}

/// What was found of a configuration.
pub(crate) struct Outcome {
    /// The name in `PROOF.md`.
    pub(crate) name: &'static str,
    pub(crate) is_good: bool,
    /// How many states there are, or how many steps lead to the violation.
    pub(crate) count: usize,
}

/// Explores the configurations whose labels pass the filter.
///
/// Each is explored by one thread: several threads would wait for each other's memory most of the time.
pub(crate) fn check_all<S: Checked>(
    setups: &[S],
    filter: impl Fn(&str) -> bool + Sync,
) -> Vec<Outcome> {
    let filter = &filter;
    let chosen = setups.iter().filter(|setup| filter(&setup.label()));
    let waiting = Mutex::new(chosen);
    let outcomes = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || waiting.lock().expect("no panic").next();
                for setup in iter::from_fn(next) {
                    let outcome = check(setup);
                    outcomes.lock().expect("no panic").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic")
}

/// Explores one configuration, and prints what was found.
fn check<S: Checked>(setup: &S) -> Outcome {
    if setup.violates().is_some() {
        return explore(setup, |builder| {
            let builder = builder.finish_when(HasDiscoveries::AnyFailures);
            builder.spawn_bfs().join()
        });
    }
    // A search in depth finds the same states in half the time. But only a search in breadth finds the shortest way
    // to a violation.
    let outcome = explore(setup, |builder| builder.spawn_dfs().join());
    if outcome.is_good {
        return outcome;
    }
    explore(setup, |builder| builder.spawn_bfs().join())
}

fn explore<S: Checked, C: Checker<S>>(
    setup: &S,
    search: impl FnOnce(CheckerBuilder<S>) -> C,
) -> Outcome {
    let start = Instant::now();
    let checker = search(setup.clone().checker().threads(1));
    let found = checker.discoveries();
    let (violated, missing) = judge(setup, &found);
    let (verdict, is_good) = match (setup.violates(), &violated[..]) {
        (None, []) if missing.is_empty() => ("holds".to_owned(), true),
        (None, []) => (format!("VACUOUS: never {missing:?}"), false),
        (None, _) => (format!("VIOLATED: {violated:?}"), false),
        (Some(expected), _) if violated.contains(&expected) => {
            (format!("violated as it must be: {expected}"), true)
        }
        (Some(expected), _) => (format!("NOT VIOLATED: {expected}"), false),
    };
    // The lines of one configuration stay together.
    let _alone = io::stdout().lock();
    println!(
        "{:<46} {:>9} {:>6} {:>7.1}  {verdict}",
        setup.label(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
    );
    let mut count = checker.unique_state_count();
    for name in violated {
        let steps = found[name].clone().into_vec();
        if setup.violates() == Some(name) {
            count = steps.len() - 1;
        }
        println!("   {name}, in {} steps:", steps.len() - 1);
        for (world, step) in steps {
            let line = match step {
                Some(step) => S::describe(&world, step),
                None => S::describe_end(&world),
            };
            println!("      {line}");
        }
    }
    Outcome {
        name: setup.name(),
        is_good,
        count,
    }
}

/// Returns the properties that were violated, and those that were not reached.
fn judge<S: Checked>(
    setup: &S,
    found: &HashMap<&'static str, Path<S::State, S::Action>>,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut violated, mut missing) = (Vec::new(), Vec::new());
    for property in setup.properties() {
        let is_found = found.contains_key(property.name);
        match property.expectation {
            Expectation::Always if is_found => violated.push(property.name),
            Expectation::Sometimes if !is_found => missing.push(property.name),
            _ => {}
        }
    }
    (violated, missing)
}
