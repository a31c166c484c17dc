//! Exhaustive model checking of the code that ships: `Lease` and its rounds, in small worlds of
//! three masters and two or three clients, through every order of events.
//!
//! Prints a line for each configuration, and for each negative control the shortest way to its
//! violation. `cargo test -p redlock-core --release --test model`; with `-- NAME`, only the
//! configurations that contain the name.

mod apply;
mod configurations;
mod driver;
mod fences;
mod masters;
mod next_steps;
mod properties;
mod setup;
mod sights;
mod steps;
mod trace;
mod world;

use std::{collections::HashMap, process::ExitCode, time::Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use setup::Setup;
use steps::Step;
use world::World;

fn main() -> ExitCode {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    let chosen = configurations::all()
        .into_iter()
        .filter(|setup| setup.name.contains(&filter));
    println!(
        "\n{:<46} {:>9} {:>6} {:>7}  verdict",
        "configuration", "states", "depth", "seconds"
    );
    let (mut passed, mut failed) = (0, 0);
    for setup in chosen {
        if check(&setup) {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Explores one configuration, prints what was found, and returns whether it was as it should be.
fn check(setup: &Setup) -> bool {
    let start = Instant::now();
    let mut builder = setup.clone().checker().threads(2);
    if setup.violates.is_some() {
        builder = builder.finish_when(HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let (violated, missing) = judge(setup, &found);
    let (verdict, is_good) = match (setup.violates, &violated[..]) {
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
        setup.name,
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
    );
    for name in violated {
        let steps = found[name].clone().into_vec();
        println!("   {name}, in {} steps:", steps.len() - 1);
        trace::tell(&steps);
    }
    is_good
}

/// Returns the properties that were violated, and those that were not reached.
fn judge(
    setup: &Setup,
    found: &HashMap<&'static str, Path<World, Step>>,
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
