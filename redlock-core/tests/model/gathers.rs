//! Worlds in which clients gather several keys.

use crate::{
    setup::{Mutation::*, Setup},
    world::faults,
};

/// Two clients that want both keys, and one that wants the second.
const GATHERED: Setup = Setup {
    name: "two keys gathered beside one",
    clients: 3,
    keys: |client| if client < 2 { 0..2 } else { 1..2 },
    begin_by: 0,
    reaches: &["acquired", "contended", "gathered in parts", "gathered"],
    ..Setup::CALM
};

/// One client that wants both keys, and one that wants the second.
const BESIDE_ONE: Setup = Setup {
    clients: 2,
    keys: |client| if client < 1 { 0..2 } else { 1..2 },
    begin_by: 1,
    ..GATHERED
};

/// Messages may overtake each other.
const OVERTAKING: Setup = Setup {
    name: "two keys gathered, a straggler, overtaking",
    begin_by: 0,
    fifo: false,
    faults: faults!(stragglers: 1),
    ..BESIDE_ONE
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![
        GATHERED,
        OVERTAKING,
        Setup {
            name: "two keys gathered, a straggler",
            faults: faults!(stragglers: 1),
            ..BESIDE_ONE
        },
        Setup {
            name: "two keys gathered, a loss and drift",
            faults: faults!(losses: 1, stalls: 1),
            ..BESIDE_ONE
        },
        Setup {
            name: "two keys gathered, a restart",
            faults: faults!(restarts: 1, stalls: 1),
            ..BESIDE_ONE
        },
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    vec![
        BESIDE_ONE.broken(PartOfTheKeys, "NOT: a part of the keys counts"),
        OVERTAKING.broken(
            ReleasedWhileGathering,
            "NOT: released while keys are gathered",
        ),
    ]
}
