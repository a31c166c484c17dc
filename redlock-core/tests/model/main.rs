//! Exhaustive model checking of the code that ships: `Lease` and its rounds, in small worlds of
//! three masters and two or three clients, through every order of events.
//!
//! Prints a line for each configuration, and for each negative control the shortest way to its
//! violation. `cargo test -p redlock-core --release --test model`; with `-- NAME`, only the
//! configurations that contain the name. A debug build leaves out the [largest](LARGE) unless they are named, or
//! asked for by `-- --large`, which checks them alone.

mod apply;
mod check;
mod configurations;
mod driver;
mod fences;
mod gathers;
mod leaves;
mod masters;
mod next_steps;
mod owners;
mod permits;
mod properties;
mod readers;
mod repairs;
mod setup;
mod sights;
mod steps;
mod trace;
mod transfers;
mod world;

use std::process::ExitCode;

use check::check_all;

/// The configurations of more than 400,000 states. They take most of the time of a whole run.
const LARGE: &[&str] = &[
    "a straggler, overtaking",
    "a late release, fresh tokens",
    "renewed, a restart and a straggler",
    "fenced, a restart and a loss",
    "fenced, a restart without quarantine",
    "fenced, counters lost, one wall clock",
    "a straggler, in order",
    "restart, quarantine of max_ttl",
    "renewal with two losses",
    "a late SET on a restarted master, EXTEND gated",
    "renewed and repaired after a restart",
    "renewed, a crash and a pause",
    "fenced, a pause and drift",
    "fenced, a late SET on a restarted master",
    "three clients",
    "renewed, a straggler",
    "fenced, counters expire",
    "permits, a straggler",
    "a reader and a writer, renewed, a straggler",
    "a reader and a writer, a repeat, overtaking",
    "a reader and a writer, a late join, a restart",
    "a reader and two writers",
    "a transfer, two adopters, overtaking",
    "a transfer beside another client",
    "NOT: the first proposal kept",
    "NOT: token reused across attempts",
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let name = arguments.iter().find(|it| !it.starts_with('-'));
    let only_large = arguments.iter().any(|it| it == "--large");
    let is_partial = name.is_none() && !only_large && cfg!(debug_assertions);
    let filter = |configuration: &str| match name {
        Some(name) => configuration.contains(name),
        None if only_large => LARGE.contains(&configuration),
        None => !is_partial || !LARGE.contains(&configuration),
    };
    println!(
        "\n{:<46} {:>9} {:>6} {:>7}  verdict",
        "configuration", "states", "depth", "seconds"
    );
    let masters = check_all(&configurations::all(), filter);
    let owners = check_all(&owners::all(), filter);
    let outcomes = [masters, owners].concat();
    if only_large && name.is_none() {
        assert_eq!(
            outcomes.len(),
            LARGE.len(),
            "no configuration has one of the names in LARGE"
        );
    }
    if is_partial {
        println!("\nleft out, because this is a debug build (`make model` has them): {LARGE:?}");
    }
    let passed = outcomes.iter().filter(|is_good| **is_good).count();
    let failed = outcomes.len() - passed;
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
