//! Explores one configuration, and says whether what was found is as it should be.

use std::{collections::HashMap, fmt::Debug, hash::Hash, time::Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

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
    fn name(&self) -> &'static str;

    /// The property that must be violated, in a negative control.
    fn violates(&self) -> Option<&'static str>;

    /// Prints the steps of a path, and how the world stands at its end.
    fn tell(path: &[(Self::State, Option<Self::Action>)]);
}

/// Explores one configuration, prints what was found, and returns whether it was as it should be.
pub(crate) fn check<S: Checked>(setup: &S) -> bool {
    let start = Instant::now();
    let mut builder = setup.clone().checker().threads(2);
    if setup.violates().is_some() {
        builder = builder.finish_when(HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
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
    println!(
        "{:<46} {:>9} {:>6} {:>7.1}  {verdict}",
        setup.name(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
    );
    for name in violated {
        let steps = found[name].clone().into_vec();
        println!("   {name}, in {} steps:", steps.len() - 1);
        S::tell(&steps);
    }
    is_good
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
