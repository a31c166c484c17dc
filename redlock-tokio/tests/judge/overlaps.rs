//! Pairs of holds of one key that are valid at one instant, and not both shared.

use std::collections::BTreeMap;

use super::{record::Record, violation::Violation};

/// Two holds that overlap.
pub(super) struct Overlap<'a> {
    key: &'a str,
    first: &'a Record,
    second: &'a Record,
}

/// Returns all overlaps of these records, by key, then by the begin of the second hold.
pub(super) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Overlap<'a>> {
    let mut by_key: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records.filter(|it| it.was_valid()) {
        for key in record.keys() {
            by_key.entry(key).or_default().push(record);
        }
    }
    let mut overlaps = Vec::new();
    for (key, mut records) in by_key {
        // The sort is stable, so holds of one instant stay in the order of their numbers.
        records.sort_by_key(|it| it.granted_at());
        let mut open: Vec<&Record> = Vec::new();
        for second in records {
            open.retain(|first| second.granted_at() < first.until());
            // A hold that is an instant does not overlap with one that begins at this instant.
            let firsts = open.iter().filter(|it| it.granted_at() < second.until());
            // A hold that is shared stays so, so one that excludes the other later does so at once.
            let firsts = firsts.filter(|it| it.excludes(second, second.granted_at()));
            overlaps.extend(firsts.map(|first| Overlap { key, first, second }));
            open.push(second);
        }
    }
    overlaps
}

impl Overlap<'_> {
    /// Returns whether one of the two holds will be forgotten at this time.
    pub(super) fn is_over_by(&self, horizon: u64) -> bool {
        self.first.is_over_by(horizon) || self.second.is_over_by(horizon)
    }

    pub(super) fn violation(&self) -> Violation {
        Violation::TwoHolders {
            key: self.key.to_owned(),
            first: self.first.hold(),
            second: self.second.hold(),
        }
    }
}
