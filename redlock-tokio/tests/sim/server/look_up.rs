//! What a server has for a key, for people who ask.

use std::time::Duration;

use redlock_tokio::{
    Key,
    node::{Holder, KeyState, Occupant},
};

use super::{Server, store::Entry};

/// No semaphore of the users has more permits.
const MAX_PERMITS: usize = 3;

impl Server {
    /// Returns all that is known of a key.
    pub(crate) fn look_up(&self, at: u64, key: &Key) -> KeyState {
        let now = self.millis(at);
        let occupant = |entry: Entry| {
            let holder = Holder::new(entry.token.to_ascii());
            Occupant::new(
                Some(holder),
                Some(Duration::from_millis(entry.expires_at - now)),
            )
        };
        let slot = |slot| {
            let name = [key.as_bytes(), format!(":slot:{slot}").as_bytes()].concat();
            let entry = self.live(now, &Key::new(name).ok()?)?;
            Some((slot, occupant(entry)))
        };
        let readers = self.store.of_key(key).filter(|(name, _)| name.is_readers());
        let readers = readers.filter(|(_, it)| now < it.expires_at);
        let mut state = KeyState::default();
        state.lock = self.live(now, key).map(occupant);
        state.readers = readers.map(|(_, it)| occupant(*it)).collect();
        state.waiting_writer = self.mark_left(now, key);
        state.permits = (0..MAX_PERMITS).filter_map(slot).collect();
        state
    }
}
