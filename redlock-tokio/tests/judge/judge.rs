//! The judge: is told what was held when, and says which of it must not have been.
//!
//! The soak and the simulator share this judge. It uses nothing of the code under test but the type of fencing
//! tokens. A test binary includes it by its path:
//!
//! ```text
//! #[path = "../judge/judge.rs"]
//! mod judge;
//! ```
//!
//! The tests of the judge are in `tests/memory/judging`.

#![allow(dead_code, reason = "each test binary uses a part of it")]

mod fences;
mod grant;
mod overlaps;
mod record;
mod stops;
mod violation;

use std::time::Duration;

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use self::{
    grant::{End, Grant, HoldId},
    violation::{FencedHold, Hold, Violation},
};
use self::{record::Record, stops::Stops};

/// A record of holds by clients of any kind, in nanoseconds of one clock.
///
/// A hold is *valid* from its grant to the end of its validity, or to an earlier end. The judge reports:
///
/// - two holds of one key that are valid at one instant, unless both are shared then;
/// - a fencing token that is not larger than that of each earlier hold of the key;
/// - a holder that was told of the loss later than the end of its validity and the tolerance.
///
/// The news may come in any order. A hold that ended at the instant of its grant counts as an instant. A hold whose validity
/// was over at its grant never was valid, so it violates nothing.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    tolerance: u64,
    records: Vec<Record>,
    stops: Stops,
}

impl Judge {
    /// Creates a judge that lets holders be told of a loss later than the end of their validity by at most this time.
    pub(crate) fn new(tolerance: Duration) -> Self {
        Self {
            tolerance: u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX),
            records: Vec::new(),
            stops: Stops::default(),
        }
    }

    /// Notes that a client got a lock. Report the end of the hold later, even if its validity is over by then.
    pub(crate) fn granted(&mut self, grant: Grant) -> HoldId {
        let id = HoldId(self.records.len());
        self.records.push(Record::new(id, grant));
        id
    }

    /// Notes that the validity of a hold reaches up to this time, if that is later than before.
    pub(crate) fn extended(&mut self, hold: HoldId, valid_until: u64) {
        self.records[hold.0].extend(valid_until);
    }

    /// Notes that a hold is shared from this time on: its writer has become a reader.
    pub(crate) fn shared(&mut self, hold: HoldId, at: u64) {
        self.records[hold.0].share(at);
    }

    /// Notes that a hold ended at this time. If the holder saw the end later than it was, report the last time at which
    /// the holder saw the hold valid.
    ///
    /// # Panics
    ///
    /// If the hold has ended already.
    pub(crate) fn ended(&mut self, hold: HoldId, end: End, at: u64) {
        self.records[hold.0].end(end, at);
    }

    /// Notes that the process of a client stood still. No holder in it can be told anything meanwhile, so this time
    /// does not count as lateness.
    pub(crate) fn stood_still(&mut self, client: &str, from: u64, until: u64) {
        self.stops.add(client, from, until);
    }

    /// Returns all violations that the news so far shows.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut violations = overlaps::violations(&self.records);
        let told_late = |it: &Record| it.told_late(self.tolerance, &self.stops);
        violations.extend(self.records.iter().filter_map(told_late));
        violations.extend(fences::violations(&self.records));
        violations
    }

    /// Returns how many holds were granted.
    pub(crate) fn holds(&self) -> usize {
        self.records.len()
    }
}
