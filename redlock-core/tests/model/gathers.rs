//! Worlds in which clients gather several keys.

use crate::{
    setup::{Mutation, Setup},
    world::Faults,
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
    faults: Faults {
        stragglers: 1,
        ..Setup::CALM.faults
    },
    ..BESIDE_ONE
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![
        GATHERED,
        OVERTAKING,
        Setup {
            name: "two keys gathered, a straggler",
            faults: Faults {
                stragglers: 1,
                ..Setup::CALM.faults
            },
            ..BESIDE_ONE
        },
        Setup {
            name: "two keys gathered, a loss and drift",
            faults: Faults {
                losses: 1,
                stalls: 1,
                ..Setup::CALM.faults
            },
            ..BESIDE_ONE
        },
        Setup {
            name: "two keys gathered, a restart",
            faults: Faults {
                restarts: 1,
                stalls: 1,
                ..Setup::CALM.faults
            },
            ..BESIDE_ONE
        },
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    let broken = |name, mutation, setup| Setup::broken(name, "one holder", Some(mutation), setup);
    vec![
        broken(
            "NOT: a part of the keys counts",
            Mutation::PartOfTheKeys,
            BESIDE_ONE,
        ),
        broken(
            "NOT: released while keys are gathered",
            Mutation::ReleasedWhileGathering,
            OVERTAKING,
        ),
    ]
}
