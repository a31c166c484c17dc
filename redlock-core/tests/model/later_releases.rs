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
    reaches: &[
        "acquired",
        "contended",
        "contended by a client that is gone",
    ],
    ..Setup::CALM
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![
        LATER,
        Setup {
            name: "a later release, renewed, drift",
            max_hold: 1,
            faults: faults!(crashes: 1, stalls: 1),
            ..LATER
        },
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    vec![LATER.broken(ReleasedTooEarly, "NOT: a later release, too early")]
}
