//! Worlds that would be too large otherwise: where faults may strike, and what clients may do.

use crate::{
    steps::Step,
    world::{Link, World},
};

/// A's way to master 1.
const A_TO_1: Link = Link {
    client: 0,
    master: 1,
};

/// Requests that set a key or add a reader may be late, A's extensions may be lost on master 1, and only master 2
/// restarts.
pub(crate) fn late_set_after_restart(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(client) => (client == 0) == (world.now == 0),
        Step::Release(_) => false,
        Step::Delay { link, given_up } => !given_up && world.sets(link),
        Step::Lose { link, carried_out } => !carried_out && link == A_TO_1 && world.extends(link),
        Step::Restart(master) => master == 2,
        Step::Tick { stalled } => stalled != Some(1),
        _ => true,
    }
}

/// Requests that set a key or add a reader may be lost on their way. Only master 2 is replaced.
pub(crate) fn lost_sets(world: &World, step: &Step) -> bool {
    match *step {
        Step::Lose { link, carried_out } => !carried_out && world.sets(link),
        Step::Promote(master) | Step::Restart(master) => master == 2,
        _ => true,
    }
}

/// SETs may be lost, and releases may be late.
pub(super) fn late_release(world: &World, step: &Step) -> bool {
    match *step {
        Step::Delay { link, given_up } => !given_up && world.releases(link),
        Step::Lose { link, .. } => world.sets(link),
        _ => true,
    }
}
