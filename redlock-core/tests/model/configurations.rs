//! Many small worlds rather than one large one, each with the faults that matter together; and each
//! rule of the algorithm once with the rule broken.

mod base;
mod controls;
pub(crate) mod narrowed;

use self::base::{
    CONNECTED, DRIFT, FAILING_RENEWAL, FENCED, FENCED_AFTER_RESTART, LATE_RELEASE,
    LATE_SET_AFTER_RESTART, ONCE, PROMOTION, RENEWED, RESTART, STRAGGLER,
};
use crate::{
    fences, later_releases, permits, readers, repairs,
    setup::{Beyond, Setup},
    several_keys, transfers,
    world::faults,
};

/// Returns all configurations: what must hold, then what must not.
pub(crate) fn all() -> Vec<Setup> {
    [
        worlds(),
        fences::worlds(),
        repairs::worlds(),
        several_keys::worlds(),
        permits::worlds(),
        readers::worlds(),
        transfers::worlds(),
        later_releases::worlds(),
        controls::negative_controls(),
        fences::negative_controls(),
        repairs::negative_controls(),
        several_keys::negative_controls(),
        permits::negative_controls(),
        readers::negative_controls(),
        transfers::negative_controls(),
        later_releases::negative_controls(),
    ]
    .concat()
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
            faults: faults!(losses: 1),
            reaches: &["acquired", "contended", "acquired at the second attempt"],
            ..Setup::CALM
        },
        Setup {
            name: "a repeated message, overtaking",
            fifo: false,
            faults: faults!(repeats: 1),
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
            faults: faults!(stragglers: 1),
            reaches: &["acquired", "contended", "extended", "late SET"],
            ..RENEWED
        },
        Setup {
            name: "renewed, a loss and drift",
            faults: faults!(losses: 1, stalls: 1),
            ..RENEWED
        },
        Setup {
            name: "renewed and repaired after a restart",
            max_hold: 3,
            begin_by: 3,
            faults: faults!(restarts: 1, stalls: 1),
            reaches: &["acquired", "contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        Setup {
            name: "renewed, a restart and a straggler",
            begin_by: 1,
            faults: faults!(stragglers: 1, restarts: 1),
            reaches: &["acquired", "contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        LATE_SET_AFTER_RESTART,
        Setup {
            name: "renewed, a crash and a pause",
            faults: faults!(pauses: 1, crashes: 1),
            reaches: &["acquired", "contended", "extended", "lost"],
            ..RENEWED
        },
        FENCED,
        Setup {
            name: "fenced, a pause and drift",
            faults: faults!(stalls: 1, pauses: 1),
            ..FENCED
        },
        Setup {
            name: "fenced, a restart and a loss",
            faults: faults!(losses: 1, restarts: 1),
            ..FENCED
        },
        FENCED_AFTER_RESTART,
        Setup {
            name: "fenced, beyond the drift allowance",
            drift: 0,
            beyond: Some(Beyond::Clocks),
            faults: faults!(losses: 1, stalls: 2),
            ..FENCED
        },
        Setup {
            name: "fenced, a restart without quarantine",
            quarantine: 0,
            beyond: Some(Beyond::Restarts),
            faults: faults!(losses: 1, restarts: 1, stalls: 1),
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
            faults: faults!(stalls: 1),
            ..ONCE
        },
    ]
}
