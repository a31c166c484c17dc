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
    contents: Contents,
    /// What was there before each of the latest changes, and the true time of the change, the oldest first.
    earlier: VecDeque<(u64, Contents)>,
}

/// What a server, a replica or a disk has.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    pub(crate) entries: BTreeMap<Name, Entry>,
    pub(crate) counters: BTreeMap<Key, FencingToken>,
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
        self.change(at).entries.insert(name, entry);
    }

    /// Deletes the entries of a key for which this holds.
    pub(crate) fn remove_if(
        &mut self,
        at: u64,
        key: &Key,
        is_meant: impl Fn(&Name, &Entry) -> bool,
    ) {
        if self.of_key(key).any(|(name, it)| is_meant(name, it)) {
            let entries = &mut self.change(at).entries;
            entries.retain(|name, it| name.key != *key || !is_meant(name, it));
        }
    }

    pub(crate) fn set_counter(&mut self, at: u64, key: &Key, counter: FencingToken) {
        self.change(at).counters.insert(key.clone(), counter);
    }

    /// Replaces everything.
    pub(crate) fn replace(&mut self, contents: Contents) {
        self.clear();
        self.contents = contents;
        for entry in self.contents.entries.values_mut() {
            entry.set_by = None;
        }
    }

    /// Forgets the keys and the counters.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns what was there at an earlier time.
    pub(crate) fn as_of(&self, at: u64) -> Contents {
        let mut earlier = self.earlier.iter();
        let before = earlier.find(|(changed_at, _)| *changed_at > at);
        before.map_or(&self.contents, |(_, it)| it).clone()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Entry> {
        self.contents.entries.get(name).copied()
    }

    /// Returns all that is stored of a key.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = (&Name, &Entry)> {
        let from = self.contents.entries.range(Name::alone(key)..);
        from.take_while(move |(name, _)| name.key == *key)
    }

    pub(crate) fn counter(&self, key: &Key) -> Option<FencingToken> {
        self.contents.counters.get(key).copied()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.contents.entries.iter()
    }

    /// Returns the contents for a change, and keeps those from before.
    fn change(&mut self, at: u64) -> &mut Contents {
        self.earlier.push_back((at, self.contents.clone()));
        let is_old = |(changed_at, _): &(u64, Contents)| changed_at + KEPT_FOR < at;
        while self.earlier.front().is_some_and(is_old) {
            self.earlier.pop_front();
        }
        &mut self.contents
    }
}
