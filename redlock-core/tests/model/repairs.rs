//! Locks that began without the vote of one master, when another one is gone for good: what keeps them, each with a
//! control.

use crate::{
    setup::{Mutation::*, Setup},
    steps::Step,
    world::{World, faults},
};

/// Another client had the key on a master for a moment. The extension must set the key first: the validity is over
/// before there could be another extension.
const BESIDE_A_RIVAL: Setup = Setup {
    name: "renewed, a master gone, a rival at first",
    attempts: 1,
    max_hold: 3,
    begin_by: 0,
    faults: faults!(outages: 1),
    reaches: &["contended", "extended without a master"],
    ..Setup::CALM
};

/// The SET to a master was lost. Nobody knows that the key is missing there before an extension has failed, and there
/// is time for another one.
const AFTER_A_LOSS: Setup = Setup {
    name: "renewed, a master gone, a loss at first",
    max_hold: 4,
    drift: 0,
    faults: faults!(outages: 1, losses: 1),
    allows: losses_of_the_first_sets,
    ..BESIDE_A_RIVAL
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        BESIDE_A_RIVAL,
        AFTER_A_LOSS,
        BESIDE_A_RIVAL
            .broken(RepairedOnlyOnceExtended, "not repaired before an extension")
            .violating("kept"),
        AFTER_A_LOSS
            .broken(RepairedOnlyOnceExtended, "repaired only after a success")
            .violating("kept"),
    ]
}

fn losses_of_the_first_sets(world: &World, step: &Step) -> bool {
    match *step {
        Step::Lose { link, .. } => world.sets(link) && world.now == 0,
        _ => true,
    }
}
