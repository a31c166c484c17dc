//! Readers and writers of one key.
//!
//! To a lease, a reader's token is like any other. So a reader and a writer reach the same states as two locks where
//! nothing depends on what a master has: under drift, late extensions, losses, restarts and promotions. Those worlds
//! are in `configurations`, and here are the others.

use crate::{
    configurations::narrowed,
    setup::{Mutation::*, Setup, TTL},
    steps::Step,
    world::{Faults, Link, Phase, World, faults},
};

/// A reader and a writer.
const CALM: Setup = Setup {
    name: "a reader and a writer",
    reads: |client| client == 0,
    faults: faults!(marks: 1),
    reaches: &[
        "contended",
        "acquired at the second attempt",
        "a reader after a writer",
        "a writer after a reader",
    ],
    ..Setup::CALM
};

/// The same, renewed for two ticks, and each tries once.
const RENEWED: Setup = Setup {
    attempts: 1,
    max_hold: 2,
    begin_by: 2,
    faults: Faults::NONE,
    ..CALM
};

const RESTART: Setup = Setup {
    name: "a reader and a writer, a restart",
    attempts: 1,
    faults: faults!(losses: 1, restarts: 1, stalls: 1),
    allows: narrowed::lost_sets,
    reaches: &["contended", "restarted while held"],
    ..CALM
};

/// The world in which a master must look at the other side when a reader is set again.
const LATE_REPAIR: Setup = Setup {
    name: "a reader and a writer, a late repair",
    max_hold: 3,
    drift: 0,
    faults: faults!(stragglers: 2, losses: 2),
    allows: late_repair,
    reaches: &["contended", "extended", "repairing"],
    ..RENEWED
};

/// Two readers, and a writer that begins when one has crashed and the other has left.
const DEAD_READER: Setup = Setup {
    name: "a writer after a dead reader",
    clients: 3,
    reads: |client| client < 2,
    lets_writers_in: true,
    attempts: 1,
    max_hold: 2,
    begin_by: 5,
    faults: faults!(crashes: 1),
    allows: after_a_dead_reader,
    reaches: &["two readers", "a writer after a reader"],
    ..CALM
};

const THREE: Setup = Setup {
    clients: 3,
    attempts: 1,
    begin_by: 1,
    faults: faults!(stalls: 1),
    allows: alike,
    reaches: &["contended"],
    ..CALM
};

const DOWNGRADE: Setup = Setup {
    name: "a downgrade beside a reader and a writer",
    clients: 3,
    reads: |client| client == 1,
    downgrades: true,
    attempts: 1,
    max_hold: 1,
    begin_by: 1,
    faults: faults!(losses: 1),
    allows: a_downgrade,
    reaches: &["contended", "a reader beside a downgraded writer"],
    ..CALM
};

pub(crate) fn all() -> Vec<Setup> {
    vec![
        CALM,
        LATE_REPAIR,
        Setup {
            name: "a reader and a writer, a repeat, overtaking",
            attempts: 1,
            fifo: false,
            faults: faults!(repeats: 1),
            reaches: &["contended"],
            ..CALM
        },
        RESTART,
        DEAD_READER,
        Setup {
            name: "two readers and a writer",
            reads: |client| client > 0,
            reaches: &["contended", "two readers"],
            ..THREE
        },
        Setup {
            name: "a reader and two writers",
            ..THREE
        },
        DOWNGRADE,
        LATE_REPAIR.broken(RepairBesideWriter, "a reader repaired beside a writer"),
        CALM.broken(JoinBesideWriter, "a reader let in beside a writer"),
        CALM.broken(WriterBesideReaders, "a writer let in beside readers"),
        DEAD_READER
            .broken(RenewedAsAWhole, "readers renewed as a whole")
            .violating("a writer gets in"),
    ]
}

/// A's request to join master 2 and its extensions on master 1 may be lost. Its repair of master 2 may be late, and so
/// may B's request to set the key on master 1.
fn late_repair(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(client) => client == 1 || world.now == 0,
        Step::Release(_) => false,
        Step::Lose {
            link: link @ Link { client: 0, master },
            carried_out: false,
        } => {
            let joins = world.sets(link) && master == 2 && world.now == 0;
            joins || world.extends(link) && master == 1
        }
        Step::Lose { .. } => false,
        Step::Delay { link, given_up } => {
            let is_late = [(0, 2), (1, 1)].contains(&(link.client, link.master));
            !given_up && is_late && world.sets(link)
        }
        _ => true,
    }
}

/// A joins at once and crashes, B joins and leaves, and C begins when the token of A must have expired.
fn after_a_dead_reader(world: &World, step: &Step) -> bool {
    let [a, b, _] = &world.clients[..] else {
        return false;
    };
    match *step {
        Step::Begin(0) => world.now == 0,
        Step::Crash(client) => client == 0 && world.now == 0 && a.phase == Phase::Held,
        Step::Tick { .. } => a.phase == Phase::Crashed,
        Step::Begin(2) => {
            let has_left = b.phase == Phase::Released && b.links.iter().all(Vec::is_empty);
            has_left && world.now >= TTL
        }
        _ => true,
    }
}

/// B and C differ in nothing, so B may begin first. Only the clock of A misses a tick.
fn alike(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(client) => client != 2 || world.clients[1].phase != Phase::Idle,
        Step::Tick { stalled } => stalled.is_none_or(|client| client == 0),
        _ => true,
    }
}

/// A takes the lock, and becomes a reader or releases it. B begins after A, and C a tick later. An extension of A
/// may be lost.
fn a_downgrade(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(0) => world.now == 0,
        Step::Begin(1) => world.clients[0].phase != Phase::Idle,
        Step::Begin(_) => world.now == 1,
        Step::Downgrade(client) => client == 0,
        Step::Lose { link, .. } => link.client == 0 && world.extends(link),
        Step::Release(client) => client == 0,
        _ => true,
    }
}
