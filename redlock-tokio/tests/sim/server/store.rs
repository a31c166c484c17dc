//! The keys and counters of a server, and how they were a while ago.

use std::collections::{BTreeMap, VecDeque};

use redlock_core::Ttl;
use redlock_tokio::{FencingToken, Key, Token};

use crate::{clock::SECOND, requests::ServiceId};

/// For how long earlier contents can be looked up. No replica lags behind by more.
const KEPT_FOR: u64 = 30 * SECOND;

/// What a server stores. Keys that have expired stay until they are replaced.
#[derive(Default)]
pub(crate) struct Store {
    entries: BTreeMap<Key, Entry>,
    counters: BTreeMap<Key, FencingToken>,
    /// The latest changes, the oldest first.
    changes: VecDeque<Change>,
}

/// The value of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    /// In milliseconds of the server's clock.
    pub(crate) expires_at: u64,
    /// The `Redlock` that has set it here. `None` if it was copied from elsewhere, with all that was released since.
    pub(crate) set_by: Option<ServiceId>,
    /// When it was set or extended, in true time.
    pub(crate) set_at: u64,
    /// For how long it was set.
    pub(crate) ttl: Ttl,
}

/// What was there before a change.
struct Change {
    /// In true time.
    at: u64,
    before: Before,
}

enum Before {
    Entry(Key, Option<Entry>),
    Counter(Key, Option<FencingToken>),
}

/// What a replica has, or a disk.
pub(crate) struct Copy {
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) counters: BTreeMap<Key, FencingToken>,
}

impl Store {
    pub(crate) fn set(&mut self, at: u64, key: &Key, entry: Entry) {
        let before = self.entries.insert(key.clone(), entry);
        self.remember(at, Before::Entry(key.clone(), before));
    }

    pub(crate) fn remove(&mut self, at: u64, key: &Key) {
        let before = self.entries.remove(key);
        self.remember(at, Before::Entry(key.clone(), before));
    }

    pub(crate) fn set_counter(&mut self, at: u64, key: &Key, counter: FencingToken) {
        let before = self.counters.insert(key.clone(), counter);
        self.remember(at, Before::Counter(key.clone(), before));
    }

    /// Replaces everything.
    pub(crate) fn replace(&mut self, copy: Copy) {
        self.entries = copy.entries;
        for entry in self.entries.values_mut() {
            entry.set_by = None;
        }
        self.counters = copy.counters;
        self.changes.clear();
    }

    /// Forgets the keys, and leaves the counters.
    pub(crate) fn clear_keys(&mut self) {
        self.entries.clear();
        self.changes.clear();
    }

    /// Forgets the counters.
    pub(crate) fn clear_counters(&mut self) {
        self.counters.clear();
        self.changes.clear();
    }

    /// Returns what was there at an earlier time.
    pub(crate) fn as_of(&self, at: u64) -> Copy {
        let mut copy = Copy {
            entries: self.entries.clone(),
            counters: self.counters.clone(),
        };
        for change in self.changes.iter().rev().take_while(|it| it.at > at) {
            match &change.before {
                Before::Entry(key, before) => restore(&mut copy.entries, key, *before),
                Before::Counter(key, before) => restore(&mut copy.counters, key, *before),
            }
        }
        copy
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        self.entries.get(key).copied()
    }

    pub(crate) fn counter(&self, key: &Key) -> Option<FencingToken> {
        self.counters.get(key).copied()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    fn remember(&mut self, at: u64, before: Before) {
        self.changes.push_back(Change { at, before });
        while self
            .changes
            .front()
            .is_some_and(|oldest| oldest.at + KEPT_FOR < at)
        {
            self.changes.pop_front();
        }
    }
}

fn restore<V>(map: &mut BTreeMap<Key, V>, key: &Key, before: Option<V>) {
    match before {
        Some(value) => drop(map.insert(key.clone(), value)),
        None => drop(map.remove(key)),
    }
}
