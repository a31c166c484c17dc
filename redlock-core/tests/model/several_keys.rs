//! Worlds in which clients want several keys, all of them or none.

use crate::{
    setup::{Mutation::*, Setup},
    world::faults,
};

/// Two clients that want both keys, and one that wants the second.
const SEVERAL_KEYS: Setup = Setup {
    name: "two keys beside one",
    clients: 3,
    keys: |client| if client < 2 { 0..2 } else { 1..2 },
    begin_by: 0,
    reaches: &["contended", "two keys held"],
    ..Setup::CALM
};

/// One client that wants both keys, and one that wants the second.
const BESIDE_ONE: Setup = Setup {
    clients: 2,
    keys: |client| if client < 1 { 0..2 } else { 1..2 },
    begin_by: 1,
    ..SEVERAL_KEYS
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        SEVERAL_KEYS,
        Setup {
            name: "two keys, a straggler, overtaking",
            begin_by: 0,
            fifo: false,
            faults: faults!(stragglers: 1),
            ..BESIDE_ONE
        },
        Setup {
            name: "two keys, a restart",
            faults: faults!(restarts: 1, stalls: 1),
            ..BESIDE_ONE
        },
        BESIDE_ONE.broken(PartOfTheKeys, "a part of the keys counts"),
    ]
}
