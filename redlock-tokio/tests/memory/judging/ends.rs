//! What the workers of the soak report as the end of a hold.

use std::time::Duration;

use redlock_tokio::LossReason;

#[path = "../../soak/worker/sight.rs"]
mod sight;

use sight::Sight;

/// A hold that was seen at 10 with validity up to 30.
fn seen_once() -> Sight {
    let mut sight = Sight::new(5);
    assert!(sight.renew(10, Duration::from_nanos(20)));
    assert!(!sight.renew(12, Duration::ZERO), "it is over");
    sight
}

#[test]
fn a_hold_whose_validity_ended_lasted_until_then() {
    for reason in [None, Some(LossReason::Expired), Some(LossReason::MaxHold)] {
        assert_eq!(seen_once().end(40, reason), 30, "{reason:?}");
        assert_eq!(seen_once().end(30, reason), 30, "{reason:?}");
        assert_eq!(seen_once().end(20, reason), 10, "{reason:?}: too early");
    }
}

#[test]
fn a_hold_that_was_lost_before_the_end_of_its_validity_lasted_until_the_last_look() {
    let reasons = [
        LossReason::KeysLost,
        LossReason::VotesWithdrawn,
        LossReason::Abandoned,
    ];
    for reason in reasons {
        for now in [20, 40] {
            assert_eq!(seen_once().end(now, Some(reason)), 10, "{reason:?}");
        }
    }
}
