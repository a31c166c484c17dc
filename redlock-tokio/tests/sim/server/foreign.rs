//! What foreign clients do with our keys on a server.

use redlock_core::Ttl;
use redlock_tokio::{Key, Token};

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

impl Server {
    /// Returns whether it carries out commands at once.
    pub(crate) fn is_at_work(&self, at: u64) -> bool {
        let is_up = self.outage.is_none() && self.stands_still_until <= at;
        is_up && self.refusal.is_none() && !self.is_replica()
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
