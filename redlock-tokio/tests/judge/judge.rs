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
//! The tests of the judge are in `tests/memory/judging.rs`.

#![allow(dead_code, reason = "each test binary uses a part of it")]

mod violation;

use std::{collections::BTreeMap, time::Duration};

use redlock_tokio::FencingToken;

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use self::violation::{FencedHold, Hold, Violation};

/// A record of holds by clients of any kind, in nanoseconds of one clock.
///
/// A hold is *valid* from its grant to the end of its validity, or to an earlier end. The judge reports:
///
/// - two holds of one key that are valid at one instant, unless both are shared then;
/// - a fencing token that is not larger than that of each earlier hold of the key;
/// - a holder that was told of the loss later than the end of its validity and the tolerance.
///
/// The news may come in any order. A hold that ended at the instant of its grant counts as an instant. A hold whose
/// validity was over at its grant never was valid, so it violates nothing.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    tolerance: u64,
    records: Vec<Record>,
    /// From when until when the processes of clients stood still.
    stops: BTreeMap<String, Vec<[u64; 2]>>,
}

/// A lock that a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The name of the client. Its holds and its stops have the same name.
    pub(crate) client: String,
    /// The keys, without repetitions.
    pub(crate) keys: Vec<String>,
    /// When the client had the lock at the latest. The time at which it was told is right.
    pub(crate) at: u64,
    /// When the validity ends, if nothing extends it.
    pub(crate) valid_until: u64,
    pub(crate) fence: Option<FencingToken>,
    /// Whether it is a reader's lock, which others may have as readers at the same time.
    pub(crate) is_shared: bool,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The release began.
    Released,
    /// The holder was told at this time that the lock is lost.
    Lost { told: u64 },
    /// The process of the holder died.
    Died,
}

/// The number of a hold, in the order in which the grants were reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HoldId(usize);

/// All news of one hold.
#[derive(Clone, Debug)]
struct Record {
    id: HoldId,
    grant: Grant,
    /// Since when it is shared.
    shared_from: Option<u64>,
    end: Option<End>,
    ended_at: u64,
}

impl Judge {
    /// Creates a judge that lets holders be told of a loss later than the end of their validity by at most this time.
    pub(crate) fn new(tolerance: Duration) -> Self {
        Self {
            tolerance: u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX),
            records: Vec::new(),
            stops: BTreeMap::new(),
        }
    }

    /// Notes that a client got a lock. Report the end of the hold later, even if its validity is over by then.
    pub(crate) fn granted(&mut self, grant: Grant) -> HoldId {
        let id = HoldId(self.records.len());
        self.records.push(Record {
            id,
            shared_from: grant.is_shared.then_some(grant.at),
            grant,
            end: None,
            ended_at: u64::MAX,
        });
        id
    }

    /// Notes that the validity of a hold reaches up to this time, if that is later than before.
    pub(crate) fn extended(&mut self, hold: HoldId, valid_until: u64) {
        let grant = &mut self.records[hold.0].grant;
        grant.valid_until = grant.valid_until.max(valid_until);
    }

    /// Notes that a hold is shared from this time on: its writer has become a reader.
    pub(crate) fn shared(&mut self, hold: HoldId, at: u64) {
        self.records[hold.0].shared_from.get_or_insert(at);
    }

    /// Notes that a hold ended at this time. If the holder saw the end later than it was, report the last time at which
    /// the holder saw the hold valid.
    ///
    /// # Panics
    ///
    /// If the hold has ended already.
    pub(crate) fn ended(&mut self, hold: HoldId, end: End, at: u64) {
        let record = &mut self.records[hold.0];
        assert!(record.end.is_none(), "{hold:?} has ended already");
        (record.end, record.ended_at) = (Some(end), at);
    }

    /// Notes that the process of a client stood still. No holder in it can be told anything meanwhile, so this time
    /// does not count as lateness.
    pub(crate) fn stood_still(&mut self, client: &str, from: u64, until: u64) {
        let stops = self.stops.entry(client.to_owned()).or_default();
        stops.push([from, until]);
        stops.sort_unstable();
    }

    /// Returns all violations that the news so far shows: those of each key, and then the holders that were told late.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut by_key: BTreeMap<&String, Vec<&Record>> = BTreeMap::new();
        for record in self.records.iter().filter(|it| it.was_valid()) {
            for key in &record.grant.keys {
                by_key.entry(key).or_default().push(record);
            }
        }
        let mut violations = Vec::new();
        for (key, mut records) in by_key {
            // The sort is stable, so holds of one instant stay in the order of their numbers.
            records.sort_by_key(|it| it.grant.at);
            let mut open: Vec<&Record> = Vec::new();
            let mut largest: Option<FencedHold> = None;
            for second in records {
                open.retain(|first| second.grant.at < first.until());
                let overlapping = open.iter().filter(|it| it.excludes(second));
                violations.extend(overlapping.map(|first| Violation::TwoHolders {
                    key: key.clone(),
                    first: first.hold(),
                    second: second.hold(),
                }));
                open.push(second);
                let Some(later) = second.fenced() else {
                    continue;
                };
                match &largest {
                    Some(earlier) if earlier.fence >= later.fence => {
                        violations.push(Violation::FenceDidNotGrow {
                            key: key.clone(),
                            earlier: earlier.clone(),
                            later,
                        });
                    }
                    _ => largest = Some(later),
                }
            }
        }
        violations.extend(self.records.iter().filter_map(|it| self.told_late(it)));
        violations
    }

    /// Returns a violation if the holder was told of its loss too late: its process had run for longer than the
    /// tolerance after the end of validity. A holder cannot be told before it has the lock.
    fn told_late(&self, record: &Record) -> Option<Violation> {
        let Some(End::Lost { told }) = record.end else {
            return None;
        };
        let Grant {
            client,
            at,
            valid_until,
            ..
        } = &record.grant;
        let (mut late, mut now) = (0, *valid_until.max(at));
        // Stops may overlap.
        for [from, until] in self.stops.get(client).into_iter().flatten() {
            late += (*from).min(told).saturating_sub(now);
            now = now.max(*until);
        }
        late += told.saturating_sub(now);
        (late > self.tolerance).then(|| Violation::ToldLate {
            hold: record.hold(),
            told,
            late,
        })
    }
}

impl Record {
    /// Returns whether the hold was valid at any instant.
    fn was_valid(&self) -> bool {
        self.grant.at < self.grant.valid_until && self.grant.at <= self.ended_at
    }

    /// Returns the end of the time in which the hold was valid.
    fn until(&self) -> u64 {
        self.grant.valid_until.min(self.ended_at)
    }

    /// Returns whether a hold that begins later, while this one is valid, must not.
    fn excludes(&self, later: &Self) -> bool {
        let at = later.grant.at;
        // A hold that is shared stays so, so one that excludes the other later does so at once.
        let is_shared = |it: &Self| it.shared_from.is_some_and(|from| from <= at);
        // A hold that is an instant does not overlap with one that begins at this instant.
        self.grant.at < later.until() && !(is_shared(self) && is_shared(later))
    }

    fn fenced(&self) -> Option<FencedHold> {
        let fence = self.grant.fence?;
        let hold = self.hold();
        Some(FencedHold { hold, fence })
    }

    fn hold(&self) -> Hold {
        Hold {
            id: self.id,
            client: self.grant.client.clone(),
            from: self.grant.at,
            until: self.until(),
        }
    }
}
