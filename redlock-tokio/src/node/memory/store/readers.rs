//! Readers and waiting writers on a node in memory, which does the same as the scripts on a server.

use std::collections::{BTreeMap, HashMap};

use redlock_core::{Access, Operation, Timestamp, Ttl};

use super::{Entry, Store, end_of};
use crate::{
    Key,
    node::{Answer, Command, KeyState, NodeError, Vote},
};

/// The sets of readers, and the marks of writers that wait.
#[derive(Default)]
pub(super) struct Sharing {
    /// The tokens of readers, and when they expire. An entry for a key that is not shared is left over.
    readers: HashMap<Key, BTreeMap<Box<[u8]>, Timestamp>>,
    marks: HashMap<Key, Entry>,
}

impl Sharing {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn sweep(&mut self, now: Timestamp) {
        let is_live = |end: &Timestamp| now < *end;
        self.readers.retain(|_, set| set.values().any(is_live));
        self.marks.retain(|_, mark| mark.is_live(now));
    }

    /// Returns the number of sets and marks, the expired ones included.
    pub(super) fn len(&self) -> usize {
        self.readers.len() + self.marks.len()
    }

    /// Returns whether there is a mark, which may have expired.
    pub(super) fn is_marked(&self, key: &Key) -> bool {
        self.marks.contains_key(key)
    }
}

impl Store {
    pub(super) fn execute_for_reader(&mut self, now: Timestamp, command: &Command) -> Answer {
        let key = command.key();
        Ok(match command.operation() {
            Operation::Acquire { ttl, .. } => self.join(now, command, ttl),
            Operation::Extend { ttl, .. } => self.extend_reader(now, command, ttl),
            Operation::Release { .. } => self.release_reader(now, command),
            Operation::Probe { .. } => {
                let taken = self.live(now, key).filter(|entry| !entry.is_shared());
                match (taken, self.mark(now, key)) {
                    (Some(entry), _) => entry.vote(now, true),
                    (None, Some(mark)) => Vote::Marked {
                        remaining: mark.left(now),
                    },
                    (None, None) => Vote::Free,
                }
            }
            _ => return Err(NodeError::unknown_operation()),
        })
    }

    /// Adds who has the key, alone or together with others, and whether a writer waits.
    pub(super) fn look_up_sharing(&self, now: Timestamp, key: &Key, state: &mut KeyState) {
        let entry = self.live(now, key);
        state.lock = entry
            .filter(|entry| !entry.is_shared())
            .map(|it| it.occupant(now));
        if let Some(set) = self
            .sharing
            .readers
            .get(key)
            .filter(|_| self.is_shared(now, key))
        {
            let readers = set.iter().filter(|(_, ends)| now < **ends);
            let readers = readers.map(|(value, ends)| super::occupant(now, value, *ends));
            state.readers = readers.take(KeyState::MAX_READERS).collect();
        }
        state.waiting_writer = self.mark(now, key).map(|mark| mark.left(now));
    }

    /// Marks the key, if this is the probe of a writer that waits.
    pub(super) fn set_mark(&mut self, now: Timestamp, command: &Command) {
        if let Operation::Probe {
            mark: Some(ttl), ..
        } = command.operation()
        {
            self.sweep(now);
            let mark = Entry {
                value: command.mark().into(),
                expires_at: end_of(now, ttl),
            };
            self.sharing.marks.insert(command.key().clone(), mark);
        }
    }

    /// Deletes the mark of this lease, if it is or was a writer's.
    pub(super) fn delete_mark(&mut self, command: &Command) {
        let marks = &mut self.sharing.marks;
        let mark = marks.get(command.key());
        if mark.is_some_and(|mark| &*mark.value == command.mark()) {
            marks.remove(command.key());
        }
    }

    /// Returns whether a reader would be let in.
    pub(super) fn is_open(&self, now: Timestamp, key: &Key) -> bool {
        self.mark(now, key).is_none() && self.live(now, key).is_none_or(Entry::is_shared)
    }

    fn join(&mut self, now: Timestamp, command: &Command, ttl: Ttl) -> Vote {
        let (key, token) = (command.key(), command.value());
        let is_shared = self.is_shared(now, key);
        if !is_shared && self.live(now, key).is_some() {
            return Vote::Denied;
        }
        let insists = matches!(command.access(), Access::Reader { insists: true });
        let own = self.reader(now, key, token);
        if !insists && own.is_none() && self.mark(now, key).is_some() {
            return Vote::Denied;
        }
        self.sweep(now);
        let ends = end_of(now, ttl);
        let ends = own.map_or(ends, |own| own.max(ends));
        if !self.take_doomed(key) {
            self.set_reader(now, key, token, ends, is_shared);
        }
        Vote::Granted
    }

    fn extend_reader(&mut self, now: Timestamp, command: &Command, ttl: Ttl) -> Vote {
        let (key, token) = (command.key(), command.value());
        let ends = end_of(now, ttl);
        let is_shared = self.is_shared(now, key);
        let own = if self.value(now, key) == Some(token) {
            self.delete_mark(command);
            self.live(now, key).map(|entry| entry.expires_at)
        } else {
            self.reader(now, key, token)
        };
        let Some(own) = own else {
            return Vote::Denied;
        };
        self.set_reader(now, key, token, own.max(ends), is_shared);
        Vote::Granted
    }

    fn release_reader(&mut self, now: Timestamp, command: &Command) -> Vote {
        let (key, token) = (command.key(), command.value());
        if self.value(now, key) == Some(token) {
            self.entries.remove(key);
            return Vote::Granted;
        }
        if !self.is_shared(now, key) {
            return Vote::Denied;
        }
        let set = self.sharing.readers.get_mut(key);
        if set.is_none_or(|set| set.remove(token).is_none()) {
            return Vote::Denied;
        }
        self.live_with_the_last(now, key);
        Vote::Granted
    }

    /// Adds a reader, or changes when it expires.
    fn set_reader(
        &mut self,
        now: Timestamp,
        key: &Key,
        token: &[u8],
        ends: Timestamp,
        is_shared: bool,
    ) {
        if !is_shared {
            self.insert(key.clone(), Key::SHARED.as_bytes(), ends);
            self.sharing.readers.remove(key);
        }
        let set = self.sharing.readers.entry(key.clone()).or_default();
        set.insert(token.into(), ends);
        self.live_with_the_last(now, key);
    }

    /// Lets the key live for as long as the last reader.
    fn live_with_the_last(&mut self, now: Timestamp, key: &Key) {
        let Some(set) = self.sharing.readers.get_mut(key) else {
            return;
        };
        set.retain(|_, ends| now < *ends);
        match (set.values().max(), self.entries.get_mut(key)) {
            (Some(last), Some(entry)) => entry.expires_at = *last,
            _ => {
                self.sharing.readers.remove(key);
                self.entries.remove(key);
            }
        }
    }

    fn is_shared(&self, now: Timestamp, key: &Key) -> bool {
        self.live(now, key).is_some_and(Entry::is_shared)
    }

    /// Returns when the reader with this token expires, if it is in.
    fn reader(&self, now: Timestamp, key: &Key, token: &[u8]) -> Option<Timestamp> {
        let set = self.sharing.readers.get(key)?;
        let ends = set.get(token).copied().filter(|ends| now < *ends)?;
        self.is_shared(now, key).then_some(ends)
    }

    fn mark(&self, now: Timestamp, key: &Key) -> Option<&Entry> {
        let mark = self.sharing.marks.get(key);
        mark.filter(|mark| mark.is_live(now))
    }
}

impl Entry {
    fn is_shared(&self) -> bool {
        *self.value == *Key::SHARED.as_bytes()
    }
}
