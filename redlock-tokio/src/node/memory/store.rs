mod readers;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    iter, mem,
    time::Duration,
};

use redlock_core::{Access, FencingToken, Operation, Permits, Timestamp, Ttl};

use self::readers::Sharing;
use super::lines::Lines;

use crate::{
    Key,
    key::SlotKeys,
    node::{Answer, Command, FreedNotifier, Holder, KeyState, NodeError, Occupant, Vote},
};

/// The keys of a node, and what a server does with them.
#[derive(Default)]
pub(super) struct Store {
    entries: HashMap<Key, Entry>,
    sharing: Sharing,
    counters: HashMap<Key, Counter>,
    /// When this many counters exist, the expired ones are removed.
    sweep_counters_at: usize,
    /// When this many keys, sets of readers and marks exist, the expired ones are removed.
    sweep_at: usize,
    /// The node refuses connections, and breaks those it has.
    pub(super) is_down: bool,
    /// Keys that are deleted as soon as they are set.
    doomed: HashSet<Key>,
    /// Whether such a key was set since this was asked last.
    has_lost: bool,
    /// The notifiers of probed keys.
    watchers: BTreeMap<Key, Vec<FreedNotifier>>,
    /// The lines of processes that wait.
    pub(super) lines: Lines,
}

struct Counter {
    fence: FencingToken,
    expires_at: Timestamp,
}

struct Entry {
    value: Box<[u8]>,
    expires_at: Timestamp,
}

/// A key that is gone, and the notifiers to inform. Notify after the store is unlocked: the receiver may act
/// at once.
#[must_use]
pub(super) struct Freed {
    key: Key,
    notifiers: Vec<FreedNotifier>,
}

impl Freed {
    pub(super) fn notify(self) {
        for notifier in self.notifiers {
            notifier.key(self.key.as_bytes());
        }
    }
}

impl Store {
    /// Carries out a command. It grants one for several keys only if all of them agree.
    pub(super) fn execute(&mut self, now: Timestamp, command: &Command) -> Answer {
        if command.is_readers() {
            return self.execute_for_reader(now, command);
        }
        Ok(match command.operation() {
            Operation::Acquire { ttl, fence, .. } => {
                let has_all = self.set_all(now, command, ttl);
                self.vote_and_raise(now, command, has_all, fence)
            }
            Operation::Adopt { ttl, fence, .. } => {
                let is_adopted = self.adopt(now, command, ttl);
                self.vote_and_raise(now, command, is_adopted, fence)
            }
            Operation::Fence { fence, .. } => {
                let own = command.keys().filter(|key| self.has(now, key, command));
                let own: Vec<_> = own.collect();
                let (has_all, own) = (own.len() == command.key_count(), own.into_iter());
                let vote = self.raise_counters(now, own, fence);
                if has_all { vote } else { Vote::Denied }
            }
            Operation::Extend { ttl, shortens, .. } => {
                self.extend(now, command, end_of(now, ttl), shortens)
            }
            Operation::Release { .. } => {
                if command.access() == Access::Writer {
                    self.delete_mark(command);
                }
                self.release(now, command)
            }
            Operation::Probe { .. } => {
                self.set_mark(now, command);
                self.probe(now, command)
            }
            _ => return Err(NodeError::unknown_operation()),
        })
    }

    pub(super) fn look_up(&self, now: Timestamp, key: &Key) -> KeyState {
        let mut state = KeyState::default();
        let name = |slot| Key::new(SlotKeys::name(key.as_bytes(), slot));
        let slots = (0..Permits::MAX).filter_map(|slot| Some((slot, name(slot).ok()?)));
        let taken =
            slots.filter_map(|(slot, key)| Some((slot, self.live(now, &key)?.occupant(now))));
        state.permits = taken.collect();
        self.look_up_sharing(now, key, &mut state);
        let of_permits = (0..Permits::MAX).filter_map(|slot| name(slot).ok());
        for key in iter::once(key.clone()).chain(of_permits) {
            state.waiting.extend(self.lines.client_names(&key));
        }
        state.waiting.truncate(KeyState::MAX_WAITING);
        state
    }

    pub(super) fn search(&self, now: Timestamp, prefix: &[u8]) -> Vec<Box<[u8]>> {
        let live = self.entries.iter().filter(|(_, entry)| entry.is_live(now));
        let names = live.map(|(key, _)| key.as_bytes());
        let found = names.filter(|name| name.starts_with(prefix));
        found.map(Into::into).collect()
    }

    /// Returns the value of a key that has not expired.
    pub(super) fn value(&self, now: Timestamp, key: &Key) -> Option<&[u8]> {
        self.live(now, key).map(|entry| &*entry.value)
    }

    /// Returns the number of keys that have not expired.
    pub(super) fn len(&self, now: Timestamp) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.is_live(now)).count()
    }

    pub(super) fn insert(&mut self, key: Key, value: &[u8], expires_at: Timestamp) {
        let value = value.into();
        self.entries.insert(key, Entry { value, expires_at });
    }

    /// Deletes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, now: Timestamp, key: &Key) -> bool {
        let removed = self.entries.remove(key);
        removed.is_some_and(|entry| entry.is_live(now))
    }

    /// Deletes all keys, counters and lines. Returns the notifiers of the clients that watched a key or stood in a line.
    pub(super) fn clear(&mut self) -> Vec<FreedNotifier> {
        self.entries.clear();
        self.counters.clear();
        self.sharing.clear();
        let watching = mem::take(&mut self.watchers).into_values().flatten();
        let mut notifiers = Vec::new();
        for it in watching.chain(self.lines.clear()) {
            if !notifiers.contains(&it) {
                notifiers.push(it);
            }
        }
        notifiers
    }

    /// Loses the key the next time that it is set.
    pub(super) fn doom(&mut self, key: Key) {
        self.doomed.insert(key);
    }

    /// Returns once whether to lose the key, which is about to be set.
    fn take_doomed(&mut self, key: &Key) -> bool {
        let is_doomed = self.doomed.remove(key);
        self.has_lost |= is_doomed;
        is_doomed
    }

    /// Returns whether a key was lost as soon as it was set, since this was asked last.
    pub(super) fn take_loss(&mut self) -> bool {
        mem::take(&mut self.has_lost)
    }

    pub(super) fn watch(&mut self, command: &Command, freed: &FreedNotifier) {
        for key in command.keys() {
            let watchers = self.watchers.entry(key.clone()).or_default();
            if !watchers.contains(freed) {
                watchers.push(freed.clone());
            }
        }
    }

    /// Takes the watchers of the key, if the key is gone, or free for readers. The session that has made the change is not
    /// notified.
    pub(super) fn take_freed(
        &mut self,
        now: Timestamp,
        key: &Key,
        by: Option<&FreedNotifier>,
    ) -> Option<Freed> {
        if self.live(now, key).is_some() && !self.is_open(now, key) {
            return None;
        }
        let (key, mut notifiers) = self.watchers.remove_entry(key)?;
        notifiers.retain(|it| Some(it) != by);
        Some(Freed { key, notifiers })
    }

    /// Returns the number of keys, sets of readers, marks and counters in memory, the expired ones included.
    #[cfg(test)]
    pub(super) fn stored(&self) -> usize {
        self.swept() + self.counters.len()
    }

    /// Sets all keys or none. Returns whether it did.
    fn set_all(&mut self, now: Timestamp, command: &Command, ttl: Ttl) -> bool {
        // Of several keys, those with the token itself are set again, as a repair.
        let is_repair = command.has_several_keys();
        let is_taken =
            |key| self.live(now, key).is_some() && !(is_repair && self.has(now, key, command));
        if command.keys().any(is_taken) {
            return false;
        }
        self.sweep(now);
        let expires_at = end_of(now, ttl);
        for key in command.keys() {
            if !self.take_doomed(key) {
                self.insert(key.clone(), command.value(), expires_at);
            }
        }
        true
    }

    /// Sets the key to another value if it has the giver's. Returns whether it had.
    fn adopt(&mut self, now: Timestamp, command: &Command, ttl: Ttl) -> bool {
        let key = command.key();
        if command.has_several_keys() || self.value(now, key) != command.giver() {
            return false;
        }
        self.insert(key.clone(), command.value(), end_of(now, ttl));
        true
    }

    /// Raises the counters if the keys were set, and there is a fence.
    fn vote_and_raise(
        &mut self,
        now: Timestamp,
        command: &Command,
        has_all: bool,
        fence: Option<FencingToken>,
    ) -> Vote {
        match fence {
            _ if !has_all => Vote::Denied,
            None => Vote::Granted,
            Some(fence) => self.raise_counters(now, command.keys(), fence),
        }
    }

    fn extend(
        &mut self,
        now: Timestamp,
        command: &Command,
        expires_at: Timestamp,
        shortens: bool,
    ) -> Vote {
        let mut vote = Vote::Granted;
        for key in command.keys() {
            let own = self.entries.get_mut(key);
            match own.filter(|it| it.is_live(now) && *it.value == *command.value()) {
                Some(entry) if shortens || entry.expires_at < expires_at => {
                    entry.expires_at = expires_at;
                }
                Some(_) => {}
                None => vote = Vote::Denied,
            }
        }
        vote
    }

    fn release(&mut self, now: Timestamp, command: &Command) -> Vote {
        let mut vote = Vote::Granted;
        for key in command.keys() {
            if self.has(now, key, command) {
                self.entries.remove(key);
            } else {
                vote = Vote::Denied;
            }
        }
        vote
    }

    fn probe(&self, now: Timestamp, command: &Command) -> Vote {
        if command.probes_slots() {
            let left = |key| self.live(now, key).map(|entry| entry.left(now));
            let slots = command.probed_slots();
            return Vote::slots(slots.map(|(slot, key)| (slot, left(key))));
        }
        let taken = command.keys().filter_map(|key| self.live(now, key));
        match taken.max_by_key(|entry| entry.expires_at) {
            None => Vote::Free,
            Some(entry) => entry.vote(now, !command.has_several_keys()),
        }
    }

    fn raise_counters<'a>(
        &mut self,
        now: Timestamp,
        keys: impl Iterator<Item = &'a Key>,
        fence: FencingToken,
    ) -> Vote {
        let outbid_by = |key| self.raise_counter(now, key, fence);
        let largest = keys.filter_map(outbid_by).max();
        largest.map_or(Vote::Granted, |counter| Vote::Outbid { counter })
    }

    /// Raises a counter. Returns it if it is no smaller than the fence already.
    fn raise_counter(
        &mut self,
        now: Timestamp,
        key: &Key,
        fence: FencingToken,
    ) -> Option<FencingToken> {
        let counter = self
            .counters
            .get(key)
            .filter(|counter| now < counter.expires_at);
        if let Some(counter) = counter.filter(|counter| counter.fence >= fence) {
            return Some(counter.fence);
        }
        if self.counters.len() >= self.sweep_counters_at.max(FEWEST) {
            self.counters.retain(|_, it| now < it.expires_at);
            self.sweep_counters_at = self.counters.len() * 2;
        }
        let expires_at = now.saturating_add(FencingToken::COUNTER_LIFETIME);
        self.counters
            .insert(key.clone(), Counter { fence, expires_at });
        None
    }

    fn has(&self, now: Timestamp, key: &Key, command: &Command) -> bool {
        self.value(now, key) == Some(command.value())
    }

    fn live(&self, now: Timestamp, key: &Key) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.is_live(now))
    }

    /// Removes what has expired whenever the number of keys, sets of readers and marks may have doubled. The cost for each
    /// is then constant, and memory is bounded.
    fn sweep(&mut self, now: Timestamp) {
        if self.swept() >= self.sweep_at.max(FEWEST) {
            self.entries.retain(|_, entry| entry.is_live(now));
            self.sharing.sweep(now);
            // The waiters for what has expired know when it would expire.
            let (entries, sharing) = (&self.entries, &self.sharing);
            self.watchers
                .retain(|key, _| entries.contains_key(key) || sharing.is_marked(key));
            self.sweep_at = self.swept() * 2;
        }
    }

    fn swept(&self) -> usize {
        self.entries.len() + self.sharing.len()
    }
}

fn end_of(now: Timestamp, ttl: Ttl) -> Timestamp {
    now.saturating_add(ttl.as_duration())
}

fn occupant(now: Timestamp, value: &[u8], expires_at: Timestamp) -> Occupant {
    let remaining = expires_at.saturating_duration_since(now);
    Occupant::new(Some(Holder::new(value)), Some(remaining))
}

/// Fewer entries than this are not swept.
pub(super) const FEWEST: usize = 64;

impl Entry {
    fn vote(&self, now: Timestamp, says_who: bool) -> Vote {
        Vote::Taken {
            remaining: self.left(now),
            by: says_who.then(|| Holder::new(&*self.value)),
        }
    }

    fn occupant(&self, now: Timestamp) -> Occupant {
        occupant(now, &self.value, self.expires_at)
    }

    fn left(&self, now: Timestamp) -> Duration {
        self.expires_at.saturating_duration_since(now)
    }

    fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}
