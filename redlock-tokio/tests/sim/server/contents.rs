//! What a server has for a key, for those who look, and what clients that are not ours do with it.

use std::time::Duration;

use redlock_core::Ttl;
use redlock_tokio::{
    Key, Token,
    node::{Holder, KeyState, Occupant},
};

use super::{Server, store::Entry};
use crate::clock::MILLI;

/// A token of a key, and its remaining life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) token: Token,
    /// In how much true time it expires, if the clock does not step.
    pub(crate) expires_in: u64,
    /// One of our `Redlock`s has set it here.
    pub(crate) is_ours: bool,
}

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

    /// Returns whether it carries out commands at once.
    pub(crate) fn is_at_work(&self, at: u64) -> bool {
        self.is_running(at) && self.refusal.is_none() && !self.is_replica()
    }

    pub(crate) fn is_running(&self, at: u64) -> bool {
        self.outage.is_none() && self.stands_still_until <= at
    }

    /// Returns what a key has: one token, or those of its readers.
    pub(crate) fn find(&self, at: u64, key: &Key) -> Vec<Found> {
        let left = |entry: Entry| (entry.expires_at * MILLI).saturating_sub(self.local(at));
        let found = |entry: Entry| Found {
            token: entry.token,
            expires_in: self.rate.true_time(left(entry)),
            is_ours: entry.set_by.is_some(),
        };
        self.all_live(self.millis(at), key).map(found).collect()
    }

    /// Sets a key, whatever it has (`SET PX`).
    pub(crate) fn overwrite(&mut self, at: u64, key: &Key, token: Token, ttl: Ttl) {
        let entry = Entry {
            token,
            expires_at: self.millis(at) + ttl.as_millis(),
            set_by: None,
            set_at: at,
            ttl,
        };
        self.foreign_writes += 1;
        self.store.set(at, key, entry);
    }

    /// Deletes a key, whatever it has (`DEL`).
    pub(crate) fn delete(&mut self, at: u64, key: &Key) {
        self.foreign_writes += 1;
        self.store.remove(at, key);
    }
}
