//! Many small worlds rather than one large one, each with the faults that matter together; and each
//! rule of the algorithm once with the rule broken.

pub(crate) mod narrowed;

use crate::{
    fences, later_releases, permits, readers, repairs,
    setup::{Beyond, Mutation::*, Setup, TTL},
    several_keys, transfers,
    world::faults,
};

/// Returns all configurations.
pub(crate) fn all() -> Vec<Setup> {
    [
        of_one_lock(),
        fences::all(),
        repairs::all(),
        several_keys::all(),
        permits::all(),
        readers::all(),
        transfers::all(),
        later_releases::all(),
    ]
    .concat()
}

/// One lock that is renewed for two ticks, by clients that try once.
const RENEWED: Setup = Setup {
    attempts: 1,
    max_hold: 2,
    begin_by: 2,
    reaches: &["contended", "extended"],
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
    faults: faults!(stragglers: 2, losses: 1, restarts: 1, stalls: 1),
    allows: narrowed::late_set_after_restart,
    reaches: &["contended", "extended", "restarted while held"],
    ..RENEWED
};

/// The world in which a token that is used twice matters.
const LATE_RELEASE: Setup = Setup {
    name: "a late release, fresh tokens",
    begin_by: 0,
    fifo: false,
    faults: faults!(stragglers: 1, losses: 2),
    allows: narrowed::late_release,
    reaches: &["acquired at the second attempt"],
    ..Setup::CALM
};

/// The world in which the length of the quarantine matters.
const RESTART: Setup = Setup {
    name: "restart, quarantine of max_ttl",
    quarantine: TTL,
    faults: faults!(losses: 1, restarts: 1, stalls: 1),
    reaches: &["contended", "restarted while held"],
    ..ONCE
};

/// The world in which a client that comes later meets a replica that was promoted.
const PROMOTION: Setup = Setup {
    name: "a promotion, first-time clients",
    begin_by: 4,
    faults: faults!(losses: 1, promotions: 1),
    allows: narrowed::lost_sets,
    reaches: &["promoted while held", "votes by its marker"],
    ..ONCE
};

/// The world in which clients are connected when a replica is promoted.
const CONNECTED: Setup = Setup {
    name: "renewed, a promotion under connected clients",
    begin_by: 2,
    faults: faults!(losses: 1, promotions: 1),
    allows: narrowed::lost_sets,
    reaches: &["extended", "deceived", "votes withdrawn"],
    ..RENEWED
};

const DRIFT: Setup = Setup {
    name: "drift within the allowance",
    faults: faults!(stalls: 1),
    reaches: &["contended", "acquired at the second attempt", "lost"],
    ..Setup::CALM
};

const FAILING_RENEWAL: Setup = Setup {
    name: "renewal with two losses",
    faults: faults!(losses: 2),
    reaches: &["contended", "extended", "lost"],
    ..RENEWED
};

const STRAGGLER: Setup = Setup {
    name: "a straggler, in order",
    faults: faults!(stragglers: 1),
    reaches: &["contended", "acquired at the second attempt", "late SET"],
    ..Setup::CALM
};

/// The world in which the votes for a fence of a restarted master matter: it still has its counter,
/// which is ahead, and a late SET may have put a key there.
const FENCED_AFTER_RESTART: Setup = Setup {
    name: "fenced, a late SET on a restarted master",
    begin_by: 0,
    faults: faults!(stragglers: 1, restarts: 1),
    reaches: &["restarted while held", "outbid in quarantine"],
    ..FENCED
};

const FENCED: Setup = Setup {
    name: "fenced, a straggler",
    fenced: true,
    faults: faults!(stragglers: 1),
    reaches: &["contended", "fenced twice"],
    ..ONCE
};

/// Clients that want one lock, each for itself: what must hold, then what must not.
fn of_one_lock() -> Vec<Setup> {
    vec![
        Setup {
            reaches: &["contended", "acquired at the second attempt"],
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
            reaches: &["contended", "acquired at the second attempt"],
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
            reaches: &["contended", "extended", "lost"],
            ..RENEWED
        },
        FAILING_RENEWAL,
        Setup {
            name: "renewed, a straggler",
            faults: faults!(stragglers: 1),
            reaches: &["contended", "extended", "late SET"],
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
            reaches: &["contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        Setup {
            name: "renewed, a restart and a straggler",
            begin_by: 1,
            faults: faults!(stragglers: 1, restarts: 1),
            reaches: &["contended", "restarted while held", "repaired"],
            ..RENEWED
        },
        LATE_SET_AFTER_RESTART,
        Setup {
            name: "renewed, a crash and a pause",
            faults: faults!(pauses: 1, crashes: 1),
            reaches: &["contended", "extended", "lost"],
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
        Setup { drift: 0, ..DRIFT }.control("no drift allowance"),
        LATE_RELEASE.broken(TokenReused, "token reused across attempts"),
        Setup {
            quarantine: TTL - 1,
            ..RESTART
        }
        .control("quarantine shorter than max_ttl"),
        PROMOTION.broken(PromotionsIgnored, "promotions ignored"),
        PROMOTION.broken(MarkerAgeIgnored, "a marker of any age believed"),
        CONNECTED.broken(NothingWithdrawn, "votes of a replaced master kept"),
        LATE_SET_AFTER_RESTART.broken(ExtendNotGated, "EXTEND votes not gated"),
        FENCED_AFTER_RESTART.broken(FenceNotGated, "votes for a fence not gated"),
        Setup::CALM.broken(QuorumOneShort, "quorum one short of a majority"),
        FAILING_RENEWAL.broken(FailedExtendReleases, "failed extension releases"),
        FENCED
            .broken(CountersIgnored, "fencing counters ignored")
            .violating("fences grow"),
        STRAGGLER
            .broken(ReleaseOnlyGranted, "released only where granted")
            .violating("nothing left behind"),
        Setup {
            begin_by: 0,
            faults: faults!(stragglers: 2),
            ..ONCE
        }
        .broken(TimersIgnored, "timers ignored")
        .violating("ends in time"),
    ]
}
