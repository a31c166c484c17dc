//! Readers and writers of one key.

use redlock_core::Operation;

use crate::{
    setup::{Mutation, Setup, TTL},
    steps::Step,
    world::{Faults, Phase, World},
};

/// No fault.
const NONE: Faults = Setup::CALM.faults;

/// A reader and a writer.
const CALM: Setup = Setup {
    name: "a reader and a writer",
    reads: |client| client == 0,
    faults: Faults { marks: 1, ..NONE },
    reaches: &[
        "acquired",
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
    faults: NONE,
    ..CALM
};

/// The world in which the length of the quarantine matters.
const RESTART: Setup = Setup {
    name: "a reader and a writer, a restart",
    attempts: 1,
    faults: Faults {
        losses: 1,
        restarts: 1,
        stalls: 1,
        ..NONE
    },
    allows: losses_of_acquisitions,
    reaches: &["acquired", "contended", "restarted while held"],
    ..CALM
};

/// The world in which the allowance for drift matters.
const DRIFT: Setup = Setup {
    name: "a reader and a writer, drift",
    faults: Faults { stalls: 1, ..NONE },
    ..CALM
};

/// The world in which a master must look at the other side when a reader is set again.
const LATE_REPAIR: Setup = Setup {
    name: "a reader and a writer, a late repair",
    max_hold: 3,
    drift: 0,
    faults: Faults {
        stragglers: 2,
        losses: 2,
        ..NONE
    },
    allows: late_repair,
    reaches: &["acquired", "contended", "extended", "repairing"],
    ..RENEWED
};

/// The world in which the extension of a restarted master matters.
const LATE_JOIN: Setup = Setup {
    name: "a reader and a writer, a late join, a restart",
    begin_by: 2,
    max_hold: 3,
    faults: Faults {
        stragglers: 2,
        losses: 1,
        restarts: 1,
        stalls: 1,
        ..NONE
    },
    allows: late_join,
    reaches: &["acquired", "contended", "extended", "restarted while held"],
    ..RENEWED
};

const PROMOTION: Setup = Setup {
    name: "a reader and a writer, a promotion",
    attempts: 1,
    begin_by: 4,
    faults: Faults {
        losses: 1,
        promotions: 1,
        ..NONE
    },
    allows: losses_of_acquisitions,
    reaches: &["acquired", "promoted while held", "votes by its marker"],
    ..CALM
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
    faults: Faults { crashes: 1, ..NONE },
    allows: after_a_dead_reader,
    reaches: &["two readers", "a writer after a reader"],
    ..CALM
};

const THREE: Setup = Setup {
    clients: 3,
    attempts: 1,
    begin_by: 1,
    faults: Faults { stalls: 1, ..NONE },
    allows: alike,
    reaches: &["acquired", "contended"],
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
    faults: Faults { losses: 1, ..NONE },
    allows: a_downgrade,
    reaches: &[
        "acquired",
        "contended",
        "a reader beside a downgraded writer",
    ],
    ..CALM
};

pub(crate) fn worlds() -> Vec<Setup> {
    vec![
        CALM,
        Setup {
            name: "a reader and a writer, renewed, a straggler",
            faults: Faults {
                stragglers: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "extended", "late SET"],
            ..RENEWED
        },
        DRIFT,
        Setup {
            name: "a reader and a writer, renewed, a loss and drift",
            faults: Faults {
                losses: 1,
                stalls: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "extended", "repairing", "lost"],
            ..RENEWED
        },
        LATE_REPAIR,
        Setup {
            name: "a reader and a writer, a repeat, overtaking",
            attempts: 1,
            fifo: false,
            faults: Faults { repeats: 1, ..NONE },
            reaches: &["acquired", "contended"],
            ..CALM
        },
        RESTART,
        LATE_JOIN,
        PROMOTION,
        DEAD_READER,
        Setup {
            name: "two readers and a writer",
            reads: |client| client > 0,
            reaches: &["acquired", "contended", "two readers"],
            ..THREE
        },
        Setup {
            name: "a reader and two writers",
            ..THREE
        },
        DOWNGRADE,
    ]
}

pub(crate) fn negative_controls() -> Vec<Setup> {
    let broken = Setup::broken;
    let one_holder = "one holder";
    vec![
        broken(
            "NOT: readers, no drift allowance",
            one_holder,
            None,
            Setup { drift: 0, ..DRIFT },
        ),
        broken(
            "NOT: readers, quarantine shorter than max_ttl",
            one_holder,
            None,
            Setup {
                quarantine: TTL - 1,
                ..RESTART
            },
        ),
        broken(
            "NOT: readers, EXTEND votes not gated",
            one_holder,
            Some(Mutation::ExtendNotGated),
            LATE_JOIN,
        ),
        broken(
            "NOT: a reader repaired beside a writer",
            one_holder,
            Some(Mutation::RepairBesideWriter),
            LATE_REPAIR,
        ),
        broken(
            "NOT: a reader let in beside a writer",
            one_holder,
            Some(Mutation::JoinBesideWriter),
            CALM,
        ),
        broken(
            "NOT: a writer let in beside readers",
            one_holder,
            Some(Mutation::WriterBesideReaders),
            CALM,
        ),
        broken(
            "NOT: readers renewed as a whole",
            "a writer gets in",
            Some(Mutation::RenewedAsAWhole),
            DEAD_READER,
        ),
    ]
}

/// The operation of the newest message to a master.
fn newest(world: &World, client: usize, master: usize) -> Option<Operation> {
    let message = world.clients[client].links[master].last()?;
    Some(message.operation)
}

fn acquires(operation: Option<Operation>) -> bool {
    matches!(operation, Some(Operation::Acquire { .. }))
}

/// Requests that set a key or add a reader may be lost on their way. Only master 2 is replaced.
fn losses_of_acquisitions(world: &World, step: &Step) -> bool {
    match *step {
        Step::Lose {
            client,
            master,
            carried_out,
        } => !carried_out && acquires(newest(world, client, master)),
        Step::Promote(master) | Step::Restart(master) => master == 2,
        _ => true,
    }
}

/// Requests that set a key or add a reader may be late, the reader's extensions may be lost on master 1, and only master 2
/// restarts.
fn late_join(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(client) => (client == 0) == (world.now == 0),
        Step::Release(_) => false,
        Step::Delay {
            client,
            master,
            given_up,
        } => !given_up && acquires(newest(world, client, master)),
        Step::Lose {
            client,
            master,
            carried_out,
        } => {
            let extends = matches!(
                newest(world, client, master),
                Some(Operation::Extend { .. })
            );
            !carried_out && (client, master) == (0, 1) && extends
        }
        Step::Restart(master) => master == 2,
        Step::Tick { stalled } => stalled != Some(1),
        _ => true,
    }
}

/// A's request to join master 2 and its extensions on master 1 may be lost. Its repair of master 2 may be late, and so may
/// B's request to set the key on master 1.
fn late_repair(world: &World, step: &Step) -> bool {
    match *step {
        Step::Begin(client) => client == 1 || world.now == 0,
        Step::Release(_) => false,
        Step::Lose {
            client: 0,
            master,
            carried_out: false,
        } => match newest(world, 0, master) {
            Some(Operation::Acquire { .. }) => master == 2 && world.now == 0,
            Some(Operation::Extend { .. }) => master == 1,
            _ => false,
        },
        Step::Lose { .. } => false,
        Step::Delay {
            client,
            master,
            given_up,
        } => {
            let is_late = [(0, 2), (1, 1)].contains(&(client, master));
            !given_up && is_late && acquires(newest(world, client, master))
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
        Step::Lose { client, master, .. } => {
            let newest = newest(world, client, master);
            client == 0 && matches!(newest, Some(Operation::Extend { .. }))
        }
        Step::Release(client) => client == 0,
        _ => true,
    }
}
