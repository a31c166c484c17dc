//! Many small worlds rather than one large one, each with the faults that matter together; and each
//! rule of the algorithm once with the rule broken.

use redlock_core::Operation;

use crate::{
    fences,
    setup::{Beyond, Mutation, Setup, TTL},
    steps::Step,
    world::{Faults, World},
};

const NONE: Faults = Setup::CALM.faults;

/// One lock that is renewed for two ticks, by clients that try once.
const RENEWED: Setup = Setup {
    attempts: 1,
    max_hold: 2,
    begin_by: 2,
    reaches: &["acquired", "contended", "extended"],
    ..Setup::CALM
};

/// One attempt each.
const ONCE: Setup = Setup {
    attempts: 1,
    ..Setup::CALM
};

/// The world in which EXTEND votes of a restarted master matter.
const LATE_SET_AFTER_RESTART: Setup = Setup {
    name: "a late SET on a restarted master, EXTEND gated",
    max_hold: 3,
    faults: Faults {
        stragglers: 2,
        losses: 1,
        restarts: 1,
        stalls: 1,
        ..NONE
    },
    allows: late_set_after_restart,
    reaches: &["acquired", "contended", "extended", "restarted while held"],
    ..RENEWED
};

/// The world in which a token that is used twice matters.
const LATE_RELEASE: Setup = Setup {
    name: "a late release, fresh tokens",
    begin_by: 0,
    fifo: false,
    faults: Faults {
        stragglers: 1,
        losses: 2,
        ..NONE
    },
    allows: late_release,
    reaches: &["acquired", "acquired at the second attempt"],
    ..Setup::CALM
};

/// The world in which the length of the quarantine matters.
const RESTART: Setup = Setup {
    name: "restart, quarantine of max_ttl",
    quarantine: TTL,
    faults: Faults {
        losses: 1,
        restarts: 1,
        stalls: 1,
        ..NONE
    },
    reaches: &["acquired", "contended", "restarted while held"],
    ..ONCE
};

/// The world in which a client that comes later meets a replica that was promoted.
const PROMOTION: Setup = Setup {
    name: "a promotion, first-time clients",
    begin_by: 4,
    faults: Faults {
        losses: 1,
        promotions: 1,
        ..NONE
    },
    allows: promotion,
    reaches: &["acquired", "promoted while held", "votes by its marker"],
    ..ONCE
};

/// The world in which clients are connected when a replica is promoted.
const CONNECTED: Setup = Setup {
    name: "renewed, a promotion under connected clients",
    begin_by: 2,
    faults: Faults {
        losses: 1,
        promotions: 1,
        ..NONE
    },
    allows: promotion,
    reaches: &["acquired", "extended", "deceived", "votes withdrawn"],
    ..RENEWED
};

const DRIFT: Setup = Setup {
    name: "drift within the allowance",
    faults: Faults { stalls: 1, ..NONE },
    reaches: &[
        "acquired",
        "contended",
        "acquired at the second attempt",
        "lost",
    ],
    ..Setup::CALM
};

const FAILING_RENEWAL: Setup = Setup {
    name: "renewal with two losses",
    faults: Faults { losses: 2, ..NONE },
    reaches: &["acquired", "contended", "extended", "lost"],
    ..RENEWED
};

const STRAGGLER: Setup = Setup {
    name: "a straggler, in order",
    faults: Faults {
        stragglers: 1,
        ..NONE
    },
    reaches: &[
        "acquired",
        "contended",
        "acquired at the second attempt",
        "late SET",
    ],
    ..Setup::CALM
};

/// The world in which the votes for a fence of a restarted master matter: it still has its counter,
/// which is ahead, and a late SET may have put a key there.
const FENCED_AFTER_RESTART: Setup = Setup {
    name: "fenced, a late SET on a restarted master",
    begin_by: 0,
    faults: Faults {
        stragglers: 1,
        restarts: 1,
        ..NONE
    },
    reaches: &["acquired", "restarted while held", "outbid in quarantine"],
    ..FENCED
};

const FENCED: Setup = Setup {
    name: "fenced, a straggler",
    fenced: true,
    faults: Faults {
        stragglers: 1,
        ..NONE
    },
    reaches: &["acquired", "contended", "fenced twice"],
    ..ONCE
};

/// Returns all configurations: what must hold, then what must not.
pub(crate) fn all() -> Vec<Setup> {
    let mut all = worlds();
    all.extend(fences::worlds());
    all.extend(negative_controls());
    all.extend(fences::negative_controls());
    all
}

fn worlds() -> Vec<Setup> {
    vec![
        Setup {
            reaches: &["acquired", "contended", "acquired at the second attempt"],
            ..Setup::CALM
        },
        STRAGGLER,
        Setup {
            name: "a straggler, overtaking",
            fifo: false,
            ..STRAGGLER
        },
        Setup {
            name: "a loss",
            faults: Faults { losses: 1, ..NONE },
            reaches: &["acquired", "contended", "acquired at the second attempt"],
            ..Setup::CALM
        },
        Setup {
            name: "a repeated message, overtaking",
            fifo: false,
            faults: Faults { repeats: 1, ..NONE },
            ..ONCE
        },
        LATE_RELEASE,
        DRIFT,
        RESTART,
        PROMOTION,
        CONNECTED,
        Setup {
            name: "renewed",
            reaches: &["acquired", "contended", "extended", "lost"],
            ..RENEWED
        },
        FAILING_RENEWAL,
        Setup {
            name: "renewed, a straggler",
            faults: Faults {
                stragglers: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "extended", "late SET"],
            ..RENEWED
        },
        Setup {
            name: "renewed, a loss and drift",
            faults: Faults {
                losses: 1,
                stalls: 1,
                ..NONE
            },
            ..RENEWED
        },
        Setup {
            name: "renewed and repaired after a restart",
            max_hold: 3,
            begin_by: 3,
            faults: Faults {
                restarts: 1,
                stalls: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        Setup {
            name: "renewed, a restart and a straggler",
            begin_by: 1,
            faults: Faults {
                stragglers: 1,
                restarts: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        LATE_SET_AFTER_RESTART,
        Setup {
            name: "renewed, a crash and a pause",
            faults: Faults {
                pauses: 1,
                crashes: 1,
                ..NONE
            },
            reaches: &["acquired", "contended", "extended", "lost"],
            ..RENEWED
        },
        FENCED,
        Setup {
            name: "fenced, a pause and drift",
            faults: Faults {
                stalls: 1,
                pauses: 1,
                ..NONE
            },
            ..FENCED
        },
        Setup {
            name: "fenced, a restart and a loss",
            faults: Faults {
                losses: 1,
                restarts: 1,
                ..NONE
            },
            ..FENCED
        },
        FENCED_AFTER_RESTART,
        Setup {
            name: "fenced, beyond the drift allowance",
            drift: 0,
            beyond: Some(Beyond::Clocks),
            faults: Faults {
                losses: 1,
                stalls: 2,
                ..NONE
            },
            ..FENCED
        },
        Setup {
            name: "fenced, a restart without quarantine",
            quarantine: 0,
            beyond: Some(Beyond::Restarts),
            faults: Faults {
                losses: 1,
                restarts: 1,
                stalls: 1,
                ..NONE
            },
            ..FENCED
        },
        Setup {
            name: "three clients",
            clients: 3,
            begin_by: 1,
            ..ONCE
        },
        Setup {
            name: "three clients, drift",
            clients: 3,
            begin_by: 0,
            faults: Faults { stalls: 1, ..NONE },
            ..ONCE
        },
    ]
}

fn negative_controls() -> Vec<Setup> {
    let broken = |name, violates, mutation, setup| Setup {
        name,
        violates: Some(violates),
        mutation,
        reaches: &[],
        ..setup
    };
    let one_holder = "one holder";
    vec![
        broken(
            "NOT: no drift allowance",
            one_holder,
            None,
            Setup { drift: 0, ..DRIFT },
        ),
        broken(
            "NOT: token reused across attempts",
            one_holder,
            Some(Mutation::TokenReused),
            LATE_RELEASE,
        ),
        broken(
            "NOT: quarantine shorter than max_ttl",
            one_holder,
            None,
            Setup {
                quarantine: TTL - 1,
                ..RESTART
            },
        ),
        broken(
            "NOT: promotions ignored",
            one_holder,
            Some(Mutation::PromotionsIgnored),
            PROMOTION,
        ),
        broken(
            "NOT: a marker of any age believed",
            one_holder,
            Some(Mutation::MarkerAgeIgnored),
            PROMOTION,
        ),
        broken(
            "NOT: votes of a replaced master kept",
            one_holder,
            Some(Mutation::NothingWithdrawn),
            CONNECTED,
        ),
        broken(
            "NOT: EXTEND votes not gated",
            one_holder,
            Some(Mutation::ExtendNotGated),
            LATE_SET_AFTER_RESTART,
        ),
        broken(
            "NOT: votes for a fence not gated",
            one_holder,
            Some(Mutation::FenceNotGated),
            FENCED_AFTER_RESTART,
        ),
        broken(
            "NOT: quorum one short of a majority",
            one_holder,
            Some(Mutation::QuorumOneShort),
            Setup::CALM,
        ),
        broken(
            "NOT: failed extension releases",
            one_holder,
            Some(Mutation::FailedExtendReleases),
            FAILING_RENEWAL,
        ),
        broken(
            "NOT: fencing counters ignored",
            "fences grow",
            Some(Mutation::CountersIgnored),
            FENCED,
        ),
        broken(
            "NOT: released only where granted",
            "nothing left behind",
            Some(Mutation::ReleaseOnlyGranted),
            STRAGGLER,
        ),
        broken(
            "NOT: timers ignored",
            "ends in time",
            Some(Mutation::TimersIgnored),
            Setup {
                begin_by: 0,
                faults: Faults {
                    stragglers: 2,
                    ..NONE
                },
                ..ONCE
            },
        ),
    ]
}

/// What the message that was sent last from a client to a master asks for.
fn newest(world: &World, client: usize, master: usize) -> Option<Operation> {
    let message = world.clients[client].links[master].last()?;
    Some(message.operation)
}

/// SETs may be late, A's extensions may be lost on master 1, and only master 2 restarts.
fn late_set_after_restart(world: &World, step: &Step) -> bool {
    let is_set = |operation| matches!(operation, Some(Operation::Acquire { .. }));
    let is_extend = |operation| matches!(operation, Some(Operation::Extend { .. }));
    match *step {
        Step::Begin(client) => (client == 0) == (world.now == 0),
        Step::Release(_) => false,
        Step::Delay {
            client,
            master,
            given_up,
        } => !given_up && is_set(newest(world, client, master)),
        Step::Lose {
            client,
            master,
            carried_out,
        } => !carried_out && (client, master) == (0, 1) && is_extend(newest(world, client, master)),
        Step::Restart(master) => master == 2,
        Step::Tick { stalled } => stalled != Some(1),
        _ => true,
    }
}

/// SETs may be lost on their way, and only master 2 is replaced.
fn promotion(world: &World, step: &Step) -> bool {
    match *step {
        Step::Promote(master) => master == 2,
        Step::Lose {
            client,
            master,
            carried_out,
        } => {
            let newest = newest(world, client, master);
            !carried_out && matches!(newest, Some(Operation::Acquire { .. }))
        }
        _ => true,
    }
}

/// SETs may be lost, and releases may be late.
fn late_release(world: &World, step: &Step) -> bool {
    match *step {
        Step::Delay {
            client,
            master,
            given_up,
        } => {
            !given_up
                && matches!(
                    newest(world, client, master),
                    Some(Operation::Release { .. })
                )
        }
        Step::Lose { client, master, .. } => {
            matches!(
                newest(world, client, master),
                Some(Operation::Acquire { .. })
            )
        }
        _ => true,
    }
}
