//! The rule of the line in every order of events, in small worlds of four processes and one node.
//!
//! Prints a line for each world, and for each negative control the shortest way to its violation.

#[path = "../../../redlock-core/tests/model/check.rs"]
mod check;
mod event;
mod line_node;
#[path = "../../src/engine/line/place.rs"]
mod place;
mod process;
mod properties;
mod setup;
mod world;

/// What the rule takes from the crate that it is part of.
mod node {
    pub(crate) use redlock_tokio::node::Standing;
}

#[test]
fn the_line_calls_the_next_and_no_control_passes() {
    let is_large = |name: &str| cfg!(debug_assertions) && setup::LARGE.contains(&name);
    let outcomes = check::check_all(&setup::ALL, |name| !is_large(name));
    for outcome in outcomes {
        assert!(outcome.is_good, "{}: {}", outcome.name, outcome.count);
    }
}
