//! Many small worlds rather than one large one, each with the faults that matter together; and each
//! rule of the algorithm once with the rule broken.

mod base;
mod controls;
mod narrowed;

use self::base::{
    CONNECTED, DRIFT, FAILING_RENEWAL, FENCED, FENCED_AFTER_RESTART, LATE_RELEASE,
    LATE_SET_AFTER_RESTART, NONE, ONCE, PROMOTION, RENEWED, RESTART, STRAGGLER,
};
use crate::{
    fences, gathers, permits, readers, repairs,
    setup::{Beyond, Setup},
    world::Faults,
};

/// Returns all configurations: what must hold, then what must not.
pub(crate) fn all() -> Vec<Setup> {
    let mut all = worlds();
    all.extend(fences::worlds());
    all.extend(repairs::worlds());
    all.extend(gathers::worlds());
    all.extend(permits::worlds());
    all.extend(readers::worlds());
    all.extend(controls::negative_controls());
    all.extend(fences::negative_controls());
    all.extend(repairs::negative_controls());
    all.extend(gathers::negative_controls());
    all.extend(permits::negative_controls());
    all.extend(readers::negative_controls());
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
