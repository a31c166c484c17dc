//! The keys and counters of a server, and how they were a while ago.

use std::collections::{BTreeMap, VecDeque};

use redlock_core::Ttl;
use redlock_tokio::{FencingToken, Key, Token};

use crate::{clock::SECOND, requests::ServiceId};

/// For how long earlier contents can be looked up. No replica lags behind by more.
const KEPT_FOR: u64 = 30 * SECOND;

/// The name of a stored entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) key: Key,
    /// The token of a reader, if the key is shared.
    reader: Option<[u8; Token::LEN]>,
}

/// What a server stores. Keys that have expired stay until they are replaced.
#[derive(Default)]
pub(crate) struct Store {
    entries: BTreeMap<Name, Entry>,
    counters: BTreeMap<Key, FencingToken>,
    /// The latest changes, the oldest first.
    changes: VecDeque<Change>,
}

/// The value of a key, or one of the readers that share it.
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
    Entry(Name, Option<Entry>),
    Counter(Key, Option<FencingToken>),
}

/// What a replica has, or a disk.
pub(crate) struct Copy {
    pub(crate) entries: BTreeMap<Name, Entry>,
    pub(crate) counters: BTreeMap<Key, FencingToken>,
}

impl Name {
    /// The key itself, which one token has.
    pub(crate) fn alone(key: &Key) -> Self {
        Self {
            key: key.clone(),
            reader: None,
        }
    }

    /// The place of a reader among those that share the key.
    pub(crate) fn of_reader(key: &Key, token: Token) -> Self {
        Self {
            key: key.clone(),
            reader: Some(token.to_ascii()),
        }
    }

    pub(crate) fn is_readers(&self) -> bool {
        self.reader.is_some()
    }
}

impl Store {
    /// Lets a token have a key alone, in the place of all that is there.
    pub(crate) fn set(&mut self, at: u64, key: &Key, entry: Entry) {
        self.remove_if(at, key, |name, _| name.is_readers());
        self.put(at, Name::alone(key), entry);
    }

    /// Deletes a key, and what is beside it.
    pub(crate) fn remove(&mut self, at: u64, key: &Key) {
        self.remove_if(at, key, |_, _| true);
    }

    /// Sets one entry of a key.
    pub(crate) fn put(&mut self, at: u64, name: Name, entry: Entry) {
        let before = self.entries.insert(name.clone(), entry);
        self.remember(at, Before::Entry(name, before));
    }

    /// Deletes the entries of a key for which this holds.
    pub(crate) fn remove_if(
        &mut self,
        at: u64,
        key: &Key,
        is_meant: impl Fn(&Name, &Entry) -> bool,
    ) {
        let meant = self.of_key(key).filter(|(name, it)| is_meant(name, it));
        let meant: Vec<_> = meant.map(|(name, _)| name.clone()).collect();
        for name in meant {
            let before = self.entries.remove(&name);
            self.remember(at, Before::Entry(name, before));
        }
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

    /// Forgets the keys and the counters.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns what was there at an earlier time.
    pub(crate) fn as_of(&self, at: u64) -> Copy {
        let mut copy = Copy {
            entries: self.entries.clone(),
            counters: self.counters.clone(),
        };
        for change in self.changes.iter().rev().take_while(|it| it.at > at) {
            match &change.before {
                Before::Entry(name, before) => restore(&mut copy.entries, name, *before),
                Before::Counter(key, before) => restore(&mut copy.counters, key, *before),
            }
        }
        copy
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Entry> {
        self.entries.get(name).copied()
    }

    /// Returns all that is stored of a key.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = (&Name, &Entry)> {
        let from = self.entries.range(Name::alone(key)..);
        from.take_while(move |(name, _)| name.key == *key)
    }

    pub(crate) fn counter(&self, key: &Key) -> Option<FencingToken> {
        self.counters.get(key).copied()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
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

fn restore<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, before: Option<V>) {
    match before {
        Some(value) => drop(map.insert(key.clone(), value)),
        None => drop(map.remove(key)),
    }
}
