//! A semaphore of two permits, and three clients.

use redlock_core::Operation;

use crate::{
    setup::{Mutation, Setup, TTL},
    steps::Step,
    world::{Faults, Phase, World},
};

/// No fault.
const NONE: Faults = Setup::CALM.faults;

/// Two clients begin with slot 0, and one with slot 1.
const PERMITS: Setup = Setup {
    name: "permits, calm",
    clients: 3,
    keys: |_| 0..2,
    preferred: Some(|client| client / 2),
    begin_by: 0,
    allows: narrowed,
    reaches: &[
        "acquired",
        "contended",
        "two permits held",
        "another slot after a denial",
    ],
    ..Setup::CALM
};

/// The world in which the length of the quarantine matters.
const RESTART: Setup = Setup {
    name: "permits, a restart",
    attempts: 1,
    begin_by: 3,
    faults: Faults {
        losses: 1,
        restarts: 1,
        stalls: 1,
        ..NONE
    },
    allows: a_restart,
    reaches: &[
        "acquired",
        "contended",
        "two permits held",
        "restarted while held",
    ],
    ..PERMITS
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![
        PERMITS,
        Setup {
            name: "permits, a straggler",
            faults: Faults {
                stragglers: 1,
                ..NONE
            },
            allows: a_late_set,
            reaches: &[
                "acquired",
                "contended",
                "two permits held",
                "another slot after a denial",
                "late SET",
            ],
            ..PERMITS
        },
        Setup {
            name: "permits, renewed, a loss",
            max_hold: 2,
            faults: Faults { losses: 1, ..NONE },
            allows: a_loss,
            reaches: &[
                "acquired",
                "contended",
                "two permits held",
                "extended",
                "repairing",
            ],
            ..PERMITS
        },
        RESTART,
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    let broken = Setup::broken;
    vec![
        broken(
            "NOT: permits counted at each master",
            "no more holders than permits",
            Some(Mutation::PermitsCounted),
            PERMITS,
        ),
        broken(
            "NOT: permits, quarantine shorter than max_ttl",
            "one holder",
            None,
            Setup {
                quarantine: TTL - 1,
                ..RESTART
            },
        ),
    ]
}

/// A and B differ in nothing, so A may begin first. Only A releases.
fn narrowed(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(1) => has_begun(world, 0),
        Step::Release(client) => client == 0,
        _ => true,
    }
}

/// A's request to set the key on master 0 may be late.
fn a_late_set(world: &World, step: &Step) -> bool {
    let is_late = |client, master| (client, master) == (0, 0) && sets(world, client, master);
    match *step {
        Step::Begin(2) => has_begun(world, 1),
        Step::Delay {
            client,
            master,
            given_up,
        } => !given_up && is_late(client, master),
        _ => narrowed(world, step),
    }
}

/// A message from C to master 2 that sets or extends the key may be lost.
fn a_loss(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(2) => has_begun(world, 1),
        Step::Lose {
            client,
            master,
            carried_out,
        } => (client, master) == (2, 2) && !carried_out && !releases(world, client, master),
        Step::Release(_) => false,
        _ => narrowed(world, step),
    }
}

/// A and C begin at first, A's clock is slow, and what A sends may be lost.
fn a_restart(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(2) => world.now == 0 && has_begun(world, 0),
        Step::Begin(0) => world.now == 0,
        Step::Begin(_) => has_begun(world, 2),
        Step::Lose {
            client,
            carried_out,
            ..
        } => client == 0 && !carried_out,
        Step::Tick { stalled } => stalled.is_none_or(|client| client == 0),
        Step::Release(_) => false,
        _ => true,
    }
}

fn has_begun(world: &World, client: usize) -> bool {
    world.clients[client].phase != Phase::Idle
}

/// Whether the newest message sets a key.
fn sets(world: &World, client: usize, master: usize) -> bool {
    let newest = world.clients[client].links[master].last();
    newest.is_some_and(|it| matches!(it.operation, Operation::Acquire { .. }))
}

fn releases(world: &World, client: usize, master: usize) -> bool {
    let newest = world.clients[client].links[master].last();
    newest.is_some_and(|it| matches!(it.operation, Operation::Release { .. }))
}
