use std::fmt;

use crate::{findings::Findings, news::OwnerChange, support::MS};

/// Locks before and after a change of owner.
pub(crate) struct Outage {
    change: OwnerChange,
    /// How long no lock was granted, in nanoseconds.
    gap: u64,
    /// How many locks were granted after the gap, until the next change.
    after: usize,
}

/// Returns the outages of all changes.
pub(crate) fn of_all(findings: &Findings) -> Vec<Outage> {
    let mut begins = findings.begins.clone();
    begins.sort_unstable();
    let ends = findings.changes.iter().skip(1).map(|it| it.began);
    let ends = ends.chain([u64::MAX]);
    let pairs = findings.changes.iter().zip(ends);
    pairs
        .map(|(it, end)| Outage::find(*it, end, &begins))
        .collect()
}

impl Outage {
    fn find(change: OwnerChange, end: u64, begins: &[u64]) -> Self {
        // The lock before the fault is the first one that counts.
        let first = begins
            .partition_point(|it| *it < change.began)
            .saturating_sub(1);
        let last = begins.partition_point(|it| *it < end);
        let during = &begins[first..last];
        let gaps = during.windows(2).enumerate();
        let gaps = gaps.map(|(at, it)| (it[1] - it[0], at));
        let (gap, at) = gaps.max().unwrap_or_default();
        Self {
            change,
            gap,
            after: during.len().saturating_sub(at + 1),
        }
    }

    /// Returns whether locks were granted after the change.
    pub(crate) fn is_over(&self) -> bool {
        self.after > 0
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerChange { kind, began, named } = self.change;
        let ms = |nanoseconds: u64| MS(nanoseconds / 1_000_000);
        write!(
            f,
            "{:<22} new owner named after {:>7.2?}, no lock for {:>7.2?}, then {} locks",
            format!("{kind:?}"),
            ms(named - began),
            ms(self.gap),
            self.after
        )
    }
}
