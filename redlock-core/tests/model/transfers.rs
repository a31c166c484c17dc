//! Locks that one client gives away and another adopts.

use crate::{
    setup::{Mutation::*, Setup},
    steps::Step,
    world::{Phase, World, faults},
};

/// A gives its lock away, and two clients adopt it. A message of A may be late.
const TWO_ADOPTERS: Setup = Setup {
    name: "a transfer, two adopters, a straggler",
    clients: 3,
    adopts: |client| client > 0,
    attempts: 1,
    begin_by: 1,
    faults: faults!(stragglers: 1),
    allows: of_the_giver,
    reaches: &[
        "adopted",
        "not adopted",
        "the giver's token after an adoption",
    ],
    ..Setup::CALM
};

/// The same, where A has renewed its lock, and has set its token on a master again.
const REPAIRED: Setup = Setup {
    name: "a transfer, two adopters, repaired",
    max_hold: 2,
    faults: faults!(stragglers: 1, losses: 1),
    reaches: &[
        "adopted",
        "not adopted",
        "repairing",
        "the giver's token after an adoption",
    ],
    ..TWO_ADOPTERS
};

/// The same, where messages overtake each other. So a late SET may bring the giver's token back to a master from which
/// it was adopted, behind a repair.
const OVERTAKING: Setup = Setup {
    name: "a transfer, two adopters, overtaking",
    fifo: false,
    faults: faults!(stragglers: 1),
    reaches: &["adopted", "adopted twice"],
    ..REPAIRED
};

/// B adopts the lock that A gives away, and C wants it too. B's clock may miss a tick.
const BESIDE_ANOTHER: Setup = Setup {
    name: "a transfer beside another client",
    adopts: |client| client == 1,
    max_hold: 2,
    begin_by: 3,
    faults: faults!(stragglers: 1, losses: 1, stalls: 1),
    allows: beside_another,
    reaches: &["adopted", "not adopted", "contended"],
    ..TWO_ADOPTERS
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        TWO_ADOPTERS,
        REPAIRED,
        OVERTAKING,
        BESIDE_ANOTHER,
        Setup {
            name: "a transfer, a loss and drift",
            clients: 2,
            max_hold: 2,
            begin_by: 2,
            faults: faults!(losses: 1, stalls: 1),
            allows: |_, _| true,
            ..TWO_ADOPTERS
        },
        Setup {
            name: "a transfer, fenced",
            clients: 2,
            fenced: true,
            begin_by: 2,
            allows: |_, _| true,
            reaches: &["adopted", "fenced twice"],
            ..TWO_ADOPTERS
        },
        TWO_ADOPTERS.broken(AdoptedWithoutANewToken, "adopted without a new token"),
        TWO_ADOPTERS.broken(GiverGoesOn, "a giver that goes on"),
        TWO_ADOPTERS
            .broken(AdoptedWithoutAKey, "adopted where no key is")
            .violating("adopted once"),
        BESIDE_ANOTHER
            .broken(AdoptedAfterItsEnd, "adopted after its end")
            .violating("nobody in between"),
    ]
}

/// Only requests of A that set the key are late or lost, and A holds the lock only to give it away.
fn of_the_giver(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(0) => world.now == 0,
        Step::Release(0) => world.clients[0].phase != Phase::Held,
        Step::Delay { link, given_up } => !given_up && link.client == 0 && world.sets(link),
        Step::Lose { link, carried_out } => !carried_out && link.client == 0 && world.sets(link),
        _ => true,
    }
}

/// The same, except that A's extensions are lost. C comes once A has given the lock away.
fn beside_another(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(2) => world.given.is_some(),
        Step::Lose { link, carried_out } => !carried_out && link.client == 0 && world.extends(link),
        Step::Tick { stalled } => stalled.is_none_or(|it| it == 1),
        _ => of_the_giver(world, step),
    }
}
