//! Exhaustive model checking of the code that ships: `Lease` and its rounds, in small worlds of
//! three masters and two or three clients, through every order of events.
//!
//! Prints a line for each configuration, and for each negative control the shortest way to its
//! violation. `cargo test -p redlock-core --release --test model`; with `-- NAME`, only the
//! configurations that contain the name. A debug build leaves out the [largest](LARGE) unless they are named, or
//! asked for by `-- --large=0/4`, which checks every fourth of them from the first.

mod apply;
mod check;
mod configurations;
mod driver;
mod fences;
mod later_releases;
mod masters;
mod next_steps;
mod owners;
mod permits;
mod properties;
mod readers;
mod repairs;
mod setup;
mod several_keys;
mod sights;
mod steps;
mod trace;
mod transfers;
mod world;

use std::process::ExitCode;

use check::{Outcome, check_all};

/// The configurations of more than 250,000 states, and the slowest of the others. They take most of the time of a whole
/// run.
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
    "a reader and a writer, a repeat, overtaking",
    "a reader and two writers",
    "a transfer, two adopters, overtaking",
    "a transfer beside another client",
    "a repeated message, overtaking",
    "a promotion, first-time clients",
    "renewed, a promotion under connected clients",
    "renewed, a loss and drift",
    "fenced, a straggler",
    "fenced, beyond the drift allowance",
    "two keys beside one",
    "two keys, a straggler, overtaking",
    "two readers and a writer",
    "a transfer, two adopters, repaired",
    "a later release, a crash",
    "owners: sentinels whose epochs begin anew",
    "owners: sentinels whose epochs begin anew, a client that comes later",
    "owners: addresses that lead to another authority",
    "owners: a start during a failover, answers in any order",
    "NOT: the first proposal kept",
    "NOT: token reused across attempts",
];

/// Returns a part of the largest configurations: `1/4` is every fourth, from the second.
fn large_of(part: &str) -> Vec<&'static str> {
    let (first, step) = part.split_once('/').expect("such as --large=0/4");
    let [first, step] = [first, step].map(|it| it.parse::<usize>().expect("a number"));
    LARGE.iter().copied().skip(first).step_by(step).collect()
}

/// The page with a table of all configurations.
const PAGE: &str = include_str!("../../PROOF.md");

/// Returns whether a row of the page has the name of a configuration in its first cell, perhaps before a colon, and in
/// another one its states, or the steps to its violation.
fn is_in_page(outcome: &Outcome) -> bool {
    let name = outcome
        .name
        .trim_start_matches("owners: ")
        .trim_start_matches("NOT: ");
    let count = grouped(outcome.count);
    let mut rows = PAGE.lines().filter_map(|line| line.strip_prefix("| "));
    rows.any(|row| {
        let mut cells = row.split(" | ").map(|it| it.trim_end_matches(" |"));
        let first = cells
            .next()
            .unwrap_or_default()
            .replace(['`', '*', '\\'], "");
        first.split(':').next().map(str::trim) == Some(name) && cells.any(|cell| cell == count)
    })
}

/// Returns a number as the page writes it: `1,548,882`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let name = arguments.iter().find(|it| !it.starts_with('-'));
    let part = arguments.iter().find_map(|it| it.strip_prefix("--large="));
    let large = part.map(large_of);
    let is_partial = name.is_none() && large.is_none() && cfg!(debug_assertions);
    let filter = |configuration: &str| match (name, &large) {
        (Some(name), _) => configuration.contains(name),
        (None, Some(large)) => large.contains(&configuration),
        (None, None) => !is_partial || !LARGE.contains(&configuration),
    };
    println!(
        "\n{:<46} {:>9} {:>6} {:>7}  verdict",
        "configuration", "states", "depth", "seconds"
    );
    let masters = check_all(&configurations::all(), filter);
    let owners = check_all(&owners::all(), filter);
    let outcomes: Vec<_> = masters.into_iter().chain(owners).collect();
    if let (Some(large), None) = (large, name) {
        let is_named = outcomes.len() == large.len();
        assert!(is_named, "no configuration has one of the names in LARGE");
    }
    assert!(!outcomes.is_empty(), "no configuration has such a name");
    if is_partial {
        println!("\nleft out, because this is a debug build (`make model` has them): {LARGE:?}");
    }
    let missing: Vec<_> = outcomes.iter().filter(|it| !is_in_page(it)).collect();
    for it in &missing {
        println!("not in PROOF.md: | {} | {} |", it.name, grouped(it.count));
    }
    let passed = outcomes.iter().filter(|it| it.is_good).count();
    let failed = outcomes.len() - passed + missing.len();
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
