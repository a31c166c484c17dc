//! Worlds that other configurations are made from.

use super::narrowed;
use crate::{
    setup::{Setup, TTL},
    world::faults,
};

/// One lock that is renewed for two ticks, by clients that try once.
pub(super) const RENEWED: Setup = Setup {
    attempts: 1,
    max_hold: 2,
    begin_by: 2,
    reaches: &["acquired", "contended", "extended"],
    ..Setup::CALM
};

/// One attempt each.
pub(super) const ONCE: Setup = Setup {
    attempts: 1,
    ..Setup::CALM
};

/// The world in which EXTEND votes of a restarted master matter.
pub(super) const LATE_SET_AFTER_RESTART: Setup = Setup {
    name: "a late SET on a restarted master, EXTEND gated",
    max_hold: 3,
    faults: faults!(stragglers: 2, losses: 1, restarts: 1, stalls: 1),
    allows: narrowed::late_set_after_restart,
    reaches: &["acquired", "contended", "extended", "restarted while held"],
    ..RENEWED
};

/// The world in which a token that is used twice matters.
pub(super) const LATE_RELEASE: Setup = Setup {
    name: "a late release, fresh tokens",
    begin_by: 0,
    fifo: false,
    faults: faults!(stragglers: 1, losses: 2),
    allows: narrowed::late_release,
    reaches: &["acquired", "acquired at the second attempt"],
    ..Setup::CALM
};

/// The world in which the length of the quarantine matters.
pub(super) const RESTART: Setup = Setup {
    name: "restart, quarantine of max_ttl",
    quarantine: TTL,
    faults: faults!(losses: 1, restarts: 1, stalls: 1),
    reaches: &["acquired", "contended", "restarted while held"],
    ..ONCE
};

/// The world in which a client that comes later meets a replica that was promoted.
pub(super) const PROMOTION: Setup = Setup {
    name: "a promotion, first-time clients",
    begin_by: 4,
    faults: faults!(losses: 1, promotions: 1),
    allows: narrowed::lost_sets,
    reaches: &["acquired", "promoted while held", "votes by its marker"],
    ..ONCE
};

/// The world in which clients are connected when a replica is promoted.
pub(super) const CONNECTED: Setup = Setup {
    name: "renewed, a promotion under connected clients",
    begin_by: 2,
    faults: faults!(losses: 1, promotions: 1),
    allows: narrowed::lost_sets,
    reaches: &["acquired", "extended", "deceived", "votes withdrawn"],
    ..RENEWED
};

pub(super) const DRIFT: Setup = Setup {
    name: "drift within the allowance",
    faults: faults!(stalls: 1),
    reaches: &[
        "acquired",
        "contended",
        "acquired at the second attempt",
        "lost",
    ],
    ..Setup::CALM
};

pub(super) const FAILING_RENEWAL: Setup = Setup {
    name: "renewal with two losses",
    faults: faults!(losses: 2),
    reaches: &["acquired", "contended", "extended", "lost"],
    ..RENEWED
};

pub(super) const STRAGGLER: Setup = Setup {
    name: "a straggler, in order",
    faults: faults!(stragglers: 1),
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
pub(super) const FENCED_AFTER_RESTART: Setup = Setup {
    name: "fenced, a late SET on a restarted master",
    begin_by: 0,
    faults: faults!(stragglers: 1, restarts: 1),
    reaches: &["acquired", "restarted while held", "outbid in quarantine"],
    ..FENCED
};

pub(super) const FENCED: Setup = Setup {
    name: "fenced, a straggler",
    fenced: true,
    faults: faults!(stragglers: 1),
    reaches: &["acquired", "contended", "fenced twice"],
    ..ONCE
};
