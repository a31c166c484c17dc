//! Locks that began without the vote of one master, when another one is gone for good: what keeps them, each with a
//! control.

use redlock_core::Operation;

use crate::{
    setup::{Mutation, Setup},
    steps::Step,
    world::{Faults, World},
};

/// Another client had the key on a master for a moment. The extension must set the key first: the validity is over before
/// there could be another extension.
const BESIDE_A_RIVAL: Setup = Setup {
    name: "renewed, a master gone, a rival at first",
    attempts: 1,
    max_hold: 3,
    begin_by: 0,
    faults: Faults {
        outages: 1,
        ..Setup::CALM.faults
    },
    reaches: &["acquired", "contended", "extended without a master"],
    ..Setup::CALM
};

/// The SET to a master was lost. Nobody knows that the key is missing there before an extension has failed, and there is
/// time for another one.
const AFTER_A_LOSS: Setup = Setup {
    name: "renewed, a master gone, a loss at first",
    max_hold: 4,
    drift: 0,
    faults: Faults {
        outages: 1,
        losses: 1,
        ..Setup::CALM.faults
    },
    allows: losses_of_the_first_sets,
    ..BESIDE_A_RIVAL
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![BESIDE_A_RIVAL, AFTER_A_LOSS]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    let mutation = Some(Mutation::RepairedOnlyOnceExtended);
    let broken = |name, setup| Setup::broken(name, "kept", mutation, setup);
    vec![
        broken("NOT: not repaired before an extension", BESIDE_A_RIVAL),
        broken("NOT: repaired only after a success", AFTER_A_LOSS),
    ]
}

fn losses_of_the_first_sets(world: &World, step: &Step) -> bool {
    match *step {
        Step::Lose { client, master, .. } => {
            let newest = world.clients[client].links[master].last();
            let is_set = newest.is_some_and(|it| matches!(it.operation, Operation::Acquire { .. }));
            is_set && world.now == 0
        }
        _ => true,
    }
}
