//! The waiters for several keys. Those that want the same keys form a group.
//!
//! The first of each group is *parked* at one key that keeps the group from having all its keys: another lease has
//! the turn for this key, or the key is reserved. The group is looked at again only when this key becomes available.
//! So a turn costs no more if many wait for something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use super::{Ticket, reservation::MultiKeyWaiter};
use crate::{Key, key::KeySet};

#[derive(Debug)]
pub(super) struct MultiKeyWaiters<T> {
    waiters: BTreeMap<Ticket, MultiKeyWaiter<T>>,
    groups: BTreeMap<KeySet, SameKeys>,
    /// The first of each group, by the key at which it is parked.
    parked: BTreeMap<Key, BTreeSet<Ticket>>,
}

/// The waiters for one set of keys.
#[derive(Debug)]
struct SameKeys {
    tickets: BTreeSet<Ticket>,
    parked_at: Key,
}

impl<T> MultiKeyWaiters<T> {
    pub(super) const fn new() -> Self {
        Self {
            waiters: BTreeMap::new(),
            groups: BTreeMap::new(),
            parked: BTreeMap::new(),
        }
    }

    /// Adds a waiter, which cannot have all its keys because of this one.
    pub(super) fn push(&mut self, ticket: Ticket, waiter: MultiKeyWaiter<T>, blocked_at: &Key) {
        let group = self.groups.entry(waiter.keys.clone());
        let group = group.or_insert_with(|| SameKeys {
            tickets: BTreeSet::new(),
            parked_at: blocked_at.clone(),
        });
        let first = group.tickets.first().copied();
        group.tickets.insert(ticket);
        if first.is_none_or(|first| ticket < first) {
            let left = std::mem::replace(&mut group.parked_at, blocked_at.clone());
            if let Some(first) = first {
                self.unpark(first, &left);
            }
            self.park_at(ticket, blocked_at);
        }
        self.waiters.insert(ticket, waiter);
    }

    /// Removes a waiter. The next of its group, if any, takes its place.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<MultiKeyWaiter<T>> {
        let waiter = self.waiters.remove(&ticket)?;
        let group = self.groups.get_mut(&waiter.keys)?;
        let was_first = group.tickets.first() == Some(&ticket);
        group.tickets.remove(&ticket);
        let next = group.tickets.first().copied();
        if was_first {
            let parked_at = group.parked_at.clone();
            self.unpark(ticket, &parked_at);
            match next {
                Some(next) => self.park_at(next, &parked_at),
                None => drop(self.groups.remove(&waiter.keys)),
            }
        }
        Some(waiter)
    }

    /// Parks the first of a group at another key.
    pub(super) fn park(&mut self, ticket: Ticket, blocked_at: &Key) {
        let Some(waiter) = self.waiters.get(&ticket) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&waiter.keys) else {
            return;
        };
        if group.parked_at != *blocked_at {
            let left = std::mem::replace(&mut group.parked_at, blocked_at.clone());
            self.unpark(ticket, &left);
            self.park_at(ticket, blocked_at);
        }
    }

    /// Returns the waiters that are parked at a key, in order of arrival.
    pub(super) fn parked_at(&self, key: &Key) -> impl Iterator<Item = Ticket> {
        self.parked.get(key).into_iter().flatten().copied()
    }

    /// Returns the first waiter that is parked at a key and came after this one, or the first of all.
    pub(super) fn next_parked_at(&self, key: &Key, after: Option<Ticket>) -> Option<Ticket> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.parked.get(key)?.range((after, Bound::Unbounded));
        later.next().copied()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&MultiKeyWaiter<T>> {
        self.waiters.get(&ticket)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut MultiKeyWaiter<T>> {
        self.waiters.get_mut(&ticket)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns how many entries the largest of the tables has.
    #[cfg(feature = "test-util")]
    pub(super) fn entries(&self) -> usize {
        let parked: usize = self.parked.values().map(BTreeSet::len).sum();
        let tables = [self.waiters.len(), self.groups.len(), parked];
        tables.into_iter().max().unwrap_or(0)
    }

    fn park_at(&mut self, ticket: Ticket, key: &Key) {
        let parked = self.parked.entry(key.clone()).or_default();
        parked.insert(ticket);
    }

    fn unpark(&mut self, ticket: Ticket, key: &Key) {
        if let Some(parked) = self.parked.get_mut(key) {
            parked.remove(&ticket);
            if parked.is_empty() {
                self.parked.remove(key);
            }
        }
    }
}
