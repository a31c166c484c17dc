//! Locks that are released later, and that others are to find held until then.

use crate::{
    setup::{Mutation::ReleasedTooEarly, Setup},
    world::faults,
};

/// A client that holds the lock may set the time of its release, and may then end.
const LATER: Setup = Setup {
    name: "a later release, a crash",
    releases_later: true,
    attempts: 1,
    begin_by: 2,
    faults: faults!(crashes: 1, losses: 1),
    reaches: &["contended", "contended by a client that is gone"],
    ..Setup::CALM
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        LATER,
        Setup {
            name: "a later release, renewed, drift",
            max_hold: 1,
            faults: faults!(crashes: 1, stalls: 1),
            ..LATER
        },
        LATER.broken(ReleasedTooEarly, "a later release, too early"),
    ]
}
