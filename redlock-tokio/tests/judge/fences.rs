use std::collections::BTreeMap;

use redlock_tokio::FencingToken;

use super::{
    record::Record,
    violation::{FencedHold, Violation},
};

/// For each key, the hold with the largest fencing token so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences(BTreeMap<String, FencedHold>);

/// A hold with a token that is still to be judged.
pub(super) struct Unsettled<'a> {
    record: &'a Record,
    fence: FencingToken,
}

/// Returns the holds whose tokens are still to be judged, in the order of their grants.
pub(super) fn in_order<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Unsettled<'a>> {
    let unsettled = |record: &'a Record| {
        let fence = record.unsettled_fence()?;
        Some(Unsettled { record, fence })
    };
    let mut fenced: Vec<_> = records.filter_map(unsettled).collect();
    // The sort is stable, so holds of one instant stay in the order of their numbers.
    fenced.sort_by_key(|it| it.record.granted_at());
    fenced
}

impl Fences {
    /// Compares each token with the largest one before it, and adds it.
    pub(super) fn judge(&mut self, in_order: Vec<Unsettled<'_>>) -> Vec<Violation> {
        let mut violations = Vec::new();
        for Unsettled { record, fence } in in_order {
            for key in record.keys() {
                let later = FencedHold {
                    hold: record.hold(),
                    fence,
                };
                match self.0.get(key) {
                    Some(earlier) if earlier.fence >= fence => {
                        violations.push(Violation::FenceDidNotGrow {
                            key: key.clone(),
                            earlier: earlier.clone(),
                            later,
                        });
                    }
                    _ => drop(self.0.insert(key.clone(), later)),
                }
            }
        }
        violations
    }
}
