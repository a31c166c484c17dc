use std::collections::BTreeMap;

use super::{
    record::Record,
    violation::{FencedHold, Violation},
};

/// Compares each fencing token with the largest one before it.
pub(super) fn violations(records: &[Record]) -> Vec<Violation> {
    let with_fence = |record| Some((record, Record::fence(record)?));
    let mut fenced: Vec<_> = records.iter().filter_map(with_fence).collect();
    // The sort is stable, so holds of one instant stay in the order of their numbers.
    fenced.sort_by_key(|(record, _)| record.granted_at());
    let mut largest: BTreeMap<&str, FencedHold> = BTreeMap::new();
    let mut violations = Vec::new();
    for (record, fence) in fenced {
        for key in record.keys() {
            let later = FencedHold {
                hold: record.hold(),
                fence,
            };
            match largest.get(&**key) {
                Some(earlier) if earlier.fence >= fence => {
                    violations.push(Violation::FenceDidNotGrow {
                        key: key.clone(),
                        earlier: earlier.clone(),
                        later,
                    });
                }
                _ => drop(largest.insert(key, later)),
            }
        }
    }
    violations
}
