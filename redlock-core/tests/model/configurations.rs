//! Many small worlds rather than one large one, each with the faults that matter together; and each
//! rule of the algorithm once with the rule broken.

mod controls;
mod narrowed;

use crate::{
    fences,
    setup::{Beyond, Setup, TTL},
    world::Faults,
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
    allows: narrowed::late_set_after_restart,
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
    allows: narrowed::late_release,
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
    allows: narrowed::promotion,
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
    allows: narrowed::promotion,
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
    all.extend(controls::negative_controls());
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
