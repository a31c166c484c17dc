//! A semaphore of two permits, and three clients.

use crate::{
    setup::{Mutation::*, Setup, TTL},
    steps::Step,
    world::{Link, Phase, World, faults},
};

/// Two clients begin with slot 0, and one with slot 1.
const PERMITS: Setup = Setup {
    name: "permits, calm",
    clients: 3,
    keys: |_| 0..2,
    preferred: Some(|client| client / 2),
    begin_by: 0,
    allows: narrowed,
    reaches: &[
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
    faults: faults!(losses: 1, restarts: 1, stalls: 1),
    allows: a_restart,
    reaches: &["contended", "two permits held", "restarted while held"],
    ..PERMITS
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        PERMITS,
        Setup {
            name: "permits, a straggler",
            faults: faults!(stragglers: 1),
            allows: a_late_set,
            reaches: &[
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
            faults: faults!(losses: 1),
            allows: a_loss,
            reaches: &["contended", "two permits held", "extended", "repairing"],
            ..PERMITS
        },
        RESTART,
        PERMITS
            .broken(PermitsCounted, "permits counted at each master")
            .violating("no more holders than permits"),
        Setup {
            quarantine: TTL - 1,
            ..RESTART
        }
        .control("permits, quarantine shorter than max_ttl"),
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
    let is_late = |link| {
        link == Link {
            client: 0,
            master: 0,
        } && world.sets(link)
    };
    match *step {
        Step::Begin(2) => has_begun(world, 1),
        Step::Delay { link, given_up } => !given_up && is_late(link),
        _ => narrowed(world, step),
    }
}

/// A message from C to master 2 that sets or extends the key may be lost.
fn a_loss(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(2) => has_begun(world, 1),
        Step::Lose { link, carried_out } => {
            link == Link {
                client: 2,
                master: 2,
            } && !carried_out
                && !world.releases(link)
        }
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
        Step::Lose { link, carried_out } => link.client == 0 && !carried_out,
        Step::Tick { stalled } => stalled.is_none_or(|client| client == 0),
        Step::Release(_) => false,
        _ => true,
    }
}

fn has_begun(world: &World, client: usize) -> bool {
    world.clients[client].phase != Phase::Idle
}
