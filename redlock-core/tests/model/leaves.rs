//! Locks that their holders leave, and that others are to find held until a certain time.

use crate::{
    setup::{Mutation::LeftLockReleased, Setup},
    world::faults,
};

/// A client that holds the lock may leave it, and may then end.
const LEFT: Setup = Setup {
    name: "a lock that was left, a crash",
    leaves: true,
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
        LEFT,
        Setup {
            name: "a lock that was left, renewed, drift",
            max_hold: 1,
            faults: faults!(crashes: 1, stalls: 1),
            ..LEFT
        },
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    vec![LEFT.broken(LeftLockReleased, "NOT: a lock that was left, released")]
}
