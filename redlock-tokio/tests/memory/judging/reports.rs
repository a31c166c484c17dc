//! What the reports of the soak's workers say to the judge about losses.

use std::time::Duration;

use super::grant;
use crate::judge::Judge;

#[allow(dead_code, reason = "only reports of losses are judged here")]
#[path = "../../soak/line.rs"]
mod line;

use line::{Hold, Loss};

const TOLERANCE: u64 = 10;

/// Returns how many violations the judge finds in a hold that was valid from 0 until 100, and that is reported at its end.
/// The process stood still between these times.
fn judge(loss: Option<Loss>, stop: [u64; 2]) -> usize {
    let report = Hold {
        keys: vec![0],
        from: 0,
        until: 100,
        valid_until: 100,
        loss,
        fence: None,
        is_shared: false,
    };
    let is_deaf = matches!(loss, Some(Loss::NotTold { .. }));
    assert_eq!(report.was_not_told(), is_deaf, "{report:?}");
    let mut judge = Judge::new(Duration::from_nanos(TOLERANCE));
    let hold = judge.granted(grant("worker", report.from, report.valid_until));
    judge.ended(hold, report.end(), report.until);
    judge.stood_still("worker", stop[0], stop[1]);
    judge.violations().len()
}

#[test]
fn a_holder_that_is_told_later_than_the_tolerance_or_never_is_found() {
    let not_told = |by| Some(Loss::NotTold { by });
    let told = |at| Some(Loss::Told { at });
    let never = [0, 0];
    for (loss, stop, found) in [
        (None, never, 0),
        (told(100 + TOLERANCE), never, 0),
        (told(101 + TOLERANCE), never, 1),
        (not_told(90), never, 0),
        (not_told(100 + TOLERANCE), never, 0),
        (not_told(101 + TOLERANCE), never, 1),
        (not_told(1000), [50, 990], 0),
        (not_told(1000), [50, 989], 1),
    ] {
        assert_eq!(judge(loss, stop), found, "{loss:?}, stopped {stop:?}");
    }
}
