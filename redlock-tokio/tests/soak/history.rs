use std::{collections::BTreeMap, time::Duration};

/// A record of all holds of each key, in nanoseconds of one clock.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The holds of each key, by their begin. A number distinguishes holds that began at once, which only a
    /// broken lock allows.
    holds: BTreeMap<usize, BTreeMap<(u64, u64), Hold>>,
    added: u64,
}

/// One hold of a key by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// Two holds of a key that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) key: usize,
    pub(crate) first: Hold,
    pub(crate) second: Hold,
}

impl History {
    /// How long a hold is remembered: longer than a hold lasts plus the delay of its report.
    const MEMORY: Duration = Duration::from_secs(60);

    /// Adds a hold, and returns an overlap with an earlier one.
    pub(crate) fn add(&mut self, key: usize, hold: Hold) -> Option<Overlap> {
        if hold.from >= hold.until {
            return None; // It ended before its holder got it.
        }
        let holds = self.holds.entry(key).or_default();
        let before = holds.range(..(hold.from, 0)).next_back();
        let after = holds.range((hold.from, 0)..).next();
        let overlap = [before, after]
            .into_iter()
            .flatten()
            .map(|(_, it)| *it)
            .find(|it| it.from < hold.until && hold.from < it.until)
            .map(|other| {
                let in_order = hold.from < other.from;
                let (first, second) = if in_order {
                    (hold, other)
                } else {
                    (other, hold)
                };
                Overlap { key, first, second }
            });
        self.added += 1;
        holds.insert((hold.from, self.added), hold);
        // A hold is reported after its end, so no later report overlaps with one that ended long ago.
        let horizon = hold.from.saturating_sub(Self::MEMORY.as_nanos() as u64);
        while holds.first_key_value().is_some_and(|it| it.0.0 < horizon) {
            holds.pop_first();
        }
        overlap
    }
}
