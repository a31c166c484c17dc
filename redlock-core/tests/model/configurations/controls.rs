//! The worlds in which one rule is broken, and the property that each must violate.

use super::base::{
    CONNECTED, DRIFT, FAILING_RENEWAL, FENCED, FENCED_AFTER_RESTART, LATE_RELEASE,
    LATE_SET_AFTER_RESTART, NONE, ONCE, PROMOTION, RESTART, STRAGGLER,
};
use crate::{
    setup::{Mutation, Setup, TTL},
    world::Faults,
};

pub(super) fn negative_controls() -> Vec<Setup> {
    let broken = Setup::broken;
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
