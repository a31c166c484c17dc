use std::{collections::HashMap, sync::Mutex, time::Instant};

/// A record of all holds of each key, by one clock.
///
/// A recorded hold begins after the lock was granted and ends before its release. So it is never longer
/// than the real hold.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<HashMap<String, Vec<(Instant, Instant)>>>);

impl History {
    pub(crate) fn add(&self, key: &str, from: Instant, to: Instant) {
        let mut holds = self.0.lock().unwrap();
        holds.entry(key.to_owned()).or_default().push((from, to));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Returns a key of which two holds overlap.
    pub(crate) fn overlap(&self) -> Option<String> {
        let mut holds = self.0.lock().unwrap();
        holds.iter_mut().find_map(|(key, holds)| {
            holds.sort_unstable();
            let overlaps = holds.windows(2).any(|pair| pair[1].0 < pair[0].1);
            overlaps.then(|| key.clone())
        })
    }
}
