//! The worlds in which one rule is broken, and the property that each must violate.

use super::base::{
    CONNECTED, DRIFT, FAILING_RENEWAL, FENCED, FENCED_AFTER_RESTART, LATE_RELEASE,
    LATE_SET_AFTER_RESTART, ONCE, PROMOTION, RESTART, STRAGGLER,
};
use crate::{
    setup::{Mutation::*, Setup, TTL},
    world::faults,
};

pub(super) fn negative_controls() -> Vec<Setup> {
    vec![
        Setup { drift: 0, ..DRIFT }.control("NOT: no drift allowance"),
        LATE_RELEASE.broken(TokenReused, "NOT: token reused across attempts"),
        Setup {
            quarantine: TTL - 1,
            ..RESTART
        }
        .control("NOT: quarantine shorter than max_ttl"),
        PROMOTION.broken(PromotionsIgnored, "NOT: promotions ignored"),
        PROMOTION.broken(MarkerAgeIgnored, "NOT: a marker of any age believed"),
        CONNECTED.broken(NothingWithdrawn, "NOT: votes of a replaced master kept"),
        LATE_SET_AFTER_RESTART.broken(ExtendNotGated, "NOT: EXTEND votes not gated"),
        FENCED_AFTER_RESTART.broken(FenceNotGated, "NOT: votes for a fence not gated"),
        Setup::CALM.broken(QuorumOneShort, "NOT: quorum one short of a majority"),
        FAILING_RENEWAL.broken(FailedExtendReleases, "NOT: failed extension releases"),
        FENCED
            .broken(CountersIgnored, "NOT: fencing counters ignored")
            .violating("fences grow"),
        STRAGGLER
            .broken(ReleaseOnlyGranted, "NOT: released only where granted")
            .violating("nothing left behind"),
        Setup {
            begin_by: 0,
            faults: faults!(stragglers: 2),
            ..ONCE
        }
        .broken(TimersIgnored, "NOT: timers ignored")
        .violating("ends in time"),
    ]
}
