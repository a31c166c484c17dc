//! What the reports of the soak's workers say to the judge about losses.

use std::time::Duration;

use super::grant;
use crate::judge::{Judge, Violation};

#[allow(dead_code, reason = "only reports of losses are judged here")]
#[path = "../../soak/line.rs"]
mod line;

use line::{Hold, Loss};

const TOLERANCE: u64 = 10;

/// A hold of the key `a` that was valid from 0 until 100, and that is reported at its end.
fn report(loss: Option<Loss>) -> Hold {
    Hold {
        keys: vec![0],
        from: 0,
        until: 100,
        valid_until: 100,
        loss,
        fence: None,
        is_shared: false,
    }
}

/// Returns what the judge says of this report, if the process stood still between these times.
fn judge(report: &Hold, stop: Option<[u64; 2]>) -> Vec<Violation> {
    let mut judge = Judge::new(Duration::from_nanos(TOLERANCE));
    let grant = grant("worker", report.from, report.valid_until);
    let hold = judge.granted(grant);
    judge.ended(hold, report.end(), report.until);
    if let Some([from, until]) = stop {
        judge.stood_still("worker", from, until);
    }
    judge.violations()
}

#[test]
fn a_holder_that_released_its_lock_in_time_need_not_be_told() {
    let released = report(None);
    assert!(!released.was_not_told());
    assert_eq!(judge(&released, None), []);
}

#[test]
fn a_holder_that_was_not_told_for_longer_than_the_tolerance_is_found() {
    for (by, found) in [(90, 0), (100 + TOLERANCE, 0), (101 + TOLERANCE, 1)] {
        let deaf = report(Some(Loss::NotTold { by }));
        assert!(deaf.was_not_told());
        assert_eq!(judge(&deaf, None).len(), found, "not told by {by}");
    }
}

#[test]
fn the_time_in_which_the_process_stood_still_is_no_time_in_which_nobody_told() {
    let deaf = report(Some(Loss::NotTold { by: 1000 }));
    assert_eq!(judge(&deaf, Some([50, 990])), []);
    assert_eq!(judge(&deaf, Some([50, 989])).len(), 1);
}

#[test]
fn a_holder_that_was_told_is_judged_by_the_time_of_the_news() {
    for (at, found) in [(100 + TOLERANCE, 0), (101 + TOLERANCE, 1)] {
        let told = report(Some(Loss::Told { at }));
        assert!(!told.was_not_told());
        assert_eq!(judge(&told, None).len(), found, "told at {at}");
    }
}
