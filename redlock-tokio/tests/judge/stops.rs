use std::collections::BTreeMap;

/// The times in which processes stood still.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops(BTreeMap<String, Vec<Stop>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stop {
    from: u64,
    until: u64,
}

impl Stops {
    pub(super) fn add(&mut self, client: &str, from: u64, until: u64) {
        let stops = self.0.entry(client.to_owned()).or_default();
        stops.push(Stop { from, until });
        stops.sort_unstable();
    }

    /// Returns for how long a client ran between two times. Stops may overlap.
    pub(super) fn running_time(&self, client: &str, from: u64, until: u64) -> u64 {
        let mut running = 0;
        let mut now = from;
        for stop in self.0.get(client).into_iter().flatten() {
            running += stop.from.min(until).saturating_sub(now);
            now = now.max(stop.until);
        }
        running + until.saturating_sub(now)
    }
}
