use std::{collections::BTreeMap, time::Duration};

/// Who held which key when, in nanoseconds of one clock.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// For each key by when they began; several can have begun at once only by mistake, and are
    /// told apart by a number.
    holds: BTreeMap<usize, BTreeMap<(u64, u64), Hold>>,
    added: u64,
}

/// That a worker held a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// Two who held a key at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) key: usize,
    pub(crate) first: Hold,
    pub(crate) second: Hold,
}

impl History {
    /// How long a hold is kept: longer than one can last and a worker can be late to tell of it.
    const MEMORY: Duration = Duration::from_secs(60);

    /// Adds a hold; returns one that it overlaps with.
    pub(crate) fn add(&mut self, key: usize, hold: Hold) -> Option<Overlap> {
        if hold.from >= hold.until {
            return None; // over before its holder knew of it
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
        // A hold is told of after it ended, so what ended long before this is of no use any more.
        let horizon = hold.from.saturating_sub(Self::MEMORY.as_nanos() as u64);
        while holds.first_key_value().is_some_and(|it| it.0.0 < horizon) {
            holds.pop_first();
        }
        overlap
    }
}
