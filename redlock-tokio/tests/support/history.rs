use std::{collections::HashMap, sync::Mutex, time::Instant};

/// Who held which key when, by one clock.
///
/// A hold is written down from after the lock was given to before it is given back, so it is never
/// longer than it was.
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

    /// Returns a key that two held at once.
    pub(crate) fn overlap(&self) -> Option<String> {
        let mut holds = self.0.lock().unwrap();
        holds.iter_mut().find_map(|(key, holds)| {
            holds.sort_unstable();
            let meets = holds.windows(2).any(|pair| pair[1].0 < pair[0].1);
            meets.then(|| key.clone())
        })
    }
}
