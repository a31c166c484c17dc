//! Exhaustive model checking of the code that ships: `Lease` and its rounds, in small worlds of
//! three masters and two or three clients, through every order of events.
//!
//! Prints a line for each configuration, and for each negative control the shortest way to its
//! violation. `cargo test -p redlock-core --release --test model`; with `-- NAME`, only the
//! configurations that contain the name. A debug build leaves out the largest unless they are named, or
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

use check::{Checked, Outcome, check_all};

/// The page with a table of all configurations.
const PAGE: &str = include_str!("../../PROOF.md");

/// A configuration of more states is large.
const MANY: usize = 250_000;

/// Those with fewer states that take as long.
const SLOW: [&str; 3] = [
    "owners: addresses that lead to another authority",
    "NOT: the first proposal kept",
    "NOT: token reused across attempts",
];

/// Returns the cells of each row of the page that has the name of a configuration in its first cell, perhaps before a
/// colon.
fn rows(name: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.map(|row| row.split(" | ").map(|it| it.trim_end_matches(" |")));
    rows.map(Iterator::collect).filter(move |cells: &Vec<_>| {
        let first = cells[0].replace(['`', '*', '\\'], "");
        first.split(':').next().map(str::trim) == Some(name)
    })
}

/// Returns whether the page has the states of a configuration, or the steps to its violation.
fn is_in_page(outcome: &Outcome) -> bool {
    let count = grouped(outcome.count);
    rows(outcome.name).any(|cells| cells.contains(&&*count))
}

/// Returns the labels of the configurations that take most of the time of a whole run, by the page.
fn large() -> Vec<String> {
    [
        large_among(&configurations::all()),
        large_among(&owners::all()),
    ]
    .concat()
}

fn large_among<S: Checked>(setups: &[S]) -> Vec<String> {
    let is_many = |cell: &str| {
        let states = cell.replace(',', "").parse::<usize>();
        states.is_ok_and(|states| states > MANY)
    };
    let is_large =
        |setup: &&S| rows(setup.name()).flatten().any(is_many) || SLOW.contains(&&*setup.label());
    setups.iter().filter(is_large).map(Checked::label).collect()
}

/// Returns a part of the largest configurations: `1/4` is every fourth, from the second.
fn large_of(part: &str) -> Vec<String> {
    let (first, step) = part.split_once('/').expect("such as --large=0/4");
    let [first, step] = [first, step].map(|it| it.parse::<usize>().expect("a number"));
    large().into_iter().skip(first).step_by(step).collect()
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
    let is_partial = name.is_none() && part.is_none() && cfg!(debug_assertions);
    let large = part.map_or_else(large, large_of);
    let is_large = |label: &str| large.iter().any(|it| it == label);
    let filter = |label: &str| match (name, part) {
        (Some(name), _) => label.contains(name),
        (None, Some(_)) => is_large(label),
        (None, None) => !is_partial || !is_large(label),
    };
    println!(
        "\n{:<46} {:>9} {:>6} {:>7}  verdict",
        "configuration", "states", "depth", "seconds"
    );
    let masters = check_all(&configurations::all(), filter);
    let owners = check_all(&owners::all(), filter);
    let outcomes: Vec<_> = masters.into_iter().chain(owners).collect();
    assert!(!outcomes.is_empty(), "no configuration has such a name");
    if is_partial {
        println!("\nleft out, because this is a debug build (`make model` has them): {large:?}");
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
