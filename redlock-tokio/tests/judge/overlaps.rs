use std::collections::BTreeMap;

use super::{record::Record, violation::Violation};

/// Returns the pairs of holds of one key that are valid at one instant, and not both shared: by key, then by the begin of the
/// second hold.
pub(super) fn violations(records: &[Record]) -> Vec<Violation> {
    let mut by_key: BTreeMap<&String, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|it| it.was_valid()) {
        for key in record.keys() {
            by_key.entry(key).or_default().push(record);
        }
    }
    let mut violations = Vec::new();
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
            violations.extend(firsts.map(|first| Violation::TwoHolders {
                key: key.clone(),
                first: first.hold(),
                second: second.hold(),
            }));
            open.push(second);
        }
    }
    violations
}
