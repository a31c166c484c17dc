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

use std::{collections::BTreeMap, time::Duration};

use self::{fences::Fences, overlaps::Overlap, record::Record, stops::Stops};
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use self::{
    grant::{End, Grant, HoldId},
    violation::{FencedHold, Hold, Violation},
};

/// A record of holds by clients of any kind, in nanoseconds of one clock.
///
/// A hold is *valid* from its grant to the end of its validity, or to an earlier end. The judge reports:
///
/// - two holds of one key that are valid at one instant, unless both are shared then;
/// - a fencing token that is not larger than that of each earlier hold of the key;
/// - a holder that was told of the loss later than the end of its validity and the tolerance, or not at all.
///
/// The news of different holds may come in any order. A hold that ended at the instant of its grant counts as an
/// instant. A hold whose validity was over at its grant never was valid, so it violates nothing.
///
/// The judge remembers each hold until its end was reported and [`forget_before`](Self::forget_before) has passed that
/// end.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    tolerance: u64,
    /// No news from before this time will come.
    horizon: u64,
    next: u64,
    records: BTreeMap<HoldId, Record>,
    /// The tokens of the holds that were granted before the horizon.
    fences: Fences,
    stops: Stops,
    /// The violations by holds that are forgotten.
    found: Vec<Violation>,
}

impl Judge {
    /// Creates a judge that lets holders be told of a loss later than the end of their validity by at most this time.
    pub(crate) fn new(tolerance: Duration) -> Self {
        Self {
            tolerance: nanoseconds(tolerance),
            horizon: 0,
            next: 0,
            records: BTreeMap::new(),
            fences: Fences::default(),
            stops: Stops::default(),
            found: Vec::new(),
        }
    }

    /// Notes that a client got a lock. Report the end of the hold later, even if its validity is over by then.
    ///
    /// # Panics
    ///
    /// If the grant was before the [`horizon`](Self::horizon).
    pub(crate) fn granted(&mut self, grant: Grant) -> HoldId {
        let (at, horizon) = (grant.at, self.horizon);
        assert!(
            at >= horizon,
            "a grant at {at} is reported after the horizon {horizon}"
        );
        let id = HoldId(self.next);
        self.next += 1;
        self.records.insert(id, Record::new(id, grant));
        id
    }

    /// Notes that the validity of a hold reaches up to this time, if that is later than before.
    ///
    /// # Panics
    ///
    /// If the hold is forgotten.
    pub(crate) fn extended(&mut self, hold: HoldId, valid_until: u64) {
        self.record(hold).extend(valid_until);
    }

    /// Notes that a hold is shared from this time on: its writer has become a reader.
    ///
    /// # Panics
    ///
    /// If the hold is forgotten.
    pub(crate) fn shared(&mut self, hold: HoldId, at: u64) {
        self.record(hold).share(at);
    }

    /// Notes that a hold ended at this time. If the holder saw the end later than it was, report the last time at which
    /// the holder saw the hold valid.
    ///
    /// # Panics
    ///
    /// If the hold has ended already or is forgotten, or if it lost validity before the
    /// [`horizon`](Self::horizon) by this end.
    pub(crate) fn ended(&mut self, hold: HoldId, end: End, at: u64) {
        let horizon = self.horizon;
        let record = self.record(hold);
        let in_time = at >= horizon.min(record.valid_until());
        assert!(
            in_time,
            "an end at {at} is reported after the horizon {horizon}"
        );
        record.end(end, at);
    }

    /// Notes that the process of a client stood still. No holder in it can be told anything meanwhile, so this time
    /// does not count as lateness. A stop that is under way is reported in parts, up to each time that is forgotten.
    pub(crate) fn stood_still(&mut self, client: &str, from: u64, until: u64) {
        self.stops.add(client, from, until);
    }

    /// Promises that all news from before this time has been reported. Holds that ended before this time are judged and
    /// forgotten. The call takes time in proportion to the holds that are remembered.
    pub(crate) fn forget_before(&mut self, at: u64) {
        self.horizon = self.horizon.max(at);
        let horizon = self.horizon;
        self.note_holders_that_nobody_told();
        let overlaps = overlaps::of(self.records.values());
        let settled = overlaps.iter().filter(|it| it.is_over_by(horizon));
        self.found.extend(settled.map(Overlap::violation));
        let over = self.records.values().filter(|it| it.is_over_by(horizon));
        let late = over.filter_map(|it| it.told_late(self.tolerance, &self.stops));
        self.found.extend(late);
        self.settle_fences();
        self.records.retain(|_, it| !it.is_over_by(horizon));
        let open = self.records.values().map(Record::valid_until);
        self.stops.forget_before(open.fold(horizon, u64::min));
    }

    /// Returns the time before which no news may come any more.
    pub(crate) fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Returns all violations that the news so far shows: first those by holds that are forgotten, in the order in
    /// which they were found.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let records = || self.records.values();
        let mut violations = self.found.clone();
        violations.extend(overlaps::of(records()).iter().map(Overlap::violation));
        violations.extend(records().filter_map(|it| it.told_late(self.tolerance, &self.stops)));
        violations.extend(self.fences.clone().judge(fences::in_order(records())));
        violations
    }

    /// Returns how many holds were granted.
    pub(crate) fn holds(&self) -> u64 {
        self.next
    }

    /// Returns how many holds are remembered.
    pub(crate) fn remembered(&self) -> usize {
        self.records.len()
    }

    fn note_holders_that_nobody_told(&mut self) {
        for record in self.records.values_mut() {
            let violation = record.not_told(self.horizon, self.tolerance, &self.stops);
            self.found.extend(violation);
        }
    }

    fn settle_fences(&mut self) {
        let horizon = self.horizon;
        let old = || self.records.values().filter(|it| it.granted_at() < horizon);
        self.found
            .extend(self.fences.judge(fences::in_order(old())));
        let records = self.records.values_mut();
        let old = records.filter(|it| it.granted_at() < horizon);
        old.for_each(Record::settle_fence);
    }

    fn record(&mut self, hold: HoldId) -> &mut Record {
        let record = self.records.get_mut(&hold);
        record.unwrap_or_else(|| panic!("{hold:?} is forgotten, and there is news of it"))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
