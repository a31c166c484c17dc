//! A seeded, deterministic simulator: the whole driver, in several processes, against servers, networks and clocks
//! that go wrong.
//!
//! ```text
//! make sim-driver SEEDS=1000
//! SIM_SEED=42 SIM_CONFIG=within SIM_TRACE=1 make sim-driver
//! ```
//!
//! Each process has a paused runtime of its own, which the [`World`] steps. One thread runs one world, so a seed gives
//! the same run each time. Each seed is run twice (once in `make test`) and must leave the same trace.
//!
//! | variable | meaning |
//! |---|---|
//! | `SIM_SEEDS` | how many seeds each world within the assumptions gets (1 by default); the others get a tenth |
//! | `SIM_FROM` | the first of them: 0 by default |
//! | `SIM_SEED` | this seed only |
//! | `SIM_CONFIG` | these worlds only, by their names, such as `within,within-storm` |
//! | `SIM_TRACE` | prints what happens |
//! | `SIM_RUNS` | how often each seed is run: 2 by default |
//! | `SIM_UNSHRUNK` | reports a violation as it was found |
//! | `SIM_FAULTS` | these faults only, by their numbers, such as `3,7` |
//!
//! A violation is shrunk: the line that replays it has the fewest faults that were found to suffice.

mod authority;
mod clock;
mod configuration;
mod events;
mod faults;
mod host;
#[path = "../judge/judge.rs"]
mod judge;
mod lives;
mod message;
mod network;
mod node;
mod plan;
mod process;
mod quiet;
mod reduction;
mod registry;
mod report;
mod requests;
mod rng;
mod scale;
mod seen;
mod server;
mod services;
mod setup;
mod shared;
#[path = "../../benches/shared/table.rs"]
#[allow(dead_code, reason = "figures of benchmarks are not printed here")]
mod table;
mod trace;
mod users;
mod violation;
mod world;

use configuration::{CONFIGURATIONS, Configuration};
use plan::Plan;
use reduction::Reduction;
use report::Summary;
use seen::Seen;
use violation::Kind;
use world::World;

/// So many seeds that every situation is reached.
const CONCLUSIVE_SEEDS: u64 = 100;

#[test]
fn the_driver_keeps_its_promises() {
    let plan = Plan::from_env();
    let asked_for = configurations().filter(|it| plan.includes(it)).copied();
    let summaries = plan.simulate(asked_for.collect());
    plan.assert_known(configurations().map(|it| it.name));
    report::print(&summaries);
    if plan.is_conclusive(CONCLUSIVE_SEEDS) {
        assert_conclusive(&summaries);
    }
}

/// The page has the tables that `make sim-driver SEEDS=1000` prints.
#[test]
fn the_page_has_a_row_for_each_world() {
    let page = include_str!("../../../redlock-core/PROOF.md");
    for Configuration { name, about, .. } in configurations() {
        let row = format!("\n| `{name}` | {about} | ");
        assert!(page.contains(&row), "PROOF.md lacks{row}");
    }
    for kind in ["within", "beyond-", "control-", "without-"] {
        let rows = page.matches(&format!("\n| `{kind}")).count();
        let worlds = configurations().filter(|it| it.name.starts_with(kind));
        let worlds: Vec<_> = worlds.collect();
        let is_right = |it: &&Configuration| it.is_safe() == (kind == "within");
        assert!(worlds.iter().all(is_right), "{kind}");
        assert_eq!(
            rows,
            worlds.len(),
            "worlds in PROOF.md that are not there: {kind}"
        );
    }
}

#[test]
fn two_runs_of_a_seed_are_equal_and_another_seed_differs() {
    let run = |seed| World::new(CONFIGURATIONS[0], seed, &Reduction::none(), false).run();
    let first = run(0).hash;
    assert_eq!(first, run(0).hash);
    assert_ne!(first, run(1).hash);
}

/// `make sim-driver` finds the violations of all worlds beyond the assumptions.
#[test]
fn two_holders_and_tokens_that_do_not_grow_and_leftover_keys_are_found() {
    let find = |name: &str, kind| {
        let world = configurations().find(|it| it.name == name);
        let world = *world.expect("a world of that name");
        let run = |seed| World::new(world, seed, &Reduction::none(), false).run();
        let is_found = (0..world.found_in).any(|seed| run(seed).has(kind));
        assert!(is_found, "{name}: {kind:?}");
    };
    find("beyond-flushall", Kind::TwoHolders);
    find("without-settling", Kind::TwoHolders);
    find("beyond-wall-clocks", Kind::Fencing);
    find("control-overtaking", Kind::LeftoverKey);
}

fn configurations() -> impl Iterator<Item = &'static Configuration> {
    let of_authorities = authority::WITHIN.iter().chain(&authority::CONTROLS);
    CONFIGURATIONS.iter().chain(of_authorities)
}

/// Asserts that the runs have tested something: one seed alone need not, this many must. What worlds within the
/// assumptions must reach, no other world can reach for them.
fn assert_conclusive(summaries: &[Summary]) {
    let (within, beyond) = report::tallies(summaries);
    for group in Seen::GROUPS {
        let seen = if group.is_beyond() { &beyond } else { &within };
        for &(what, name) in group.members {
            assert!(seen.get(what) > 0, "never seen: {name}");
        }
    }
}
