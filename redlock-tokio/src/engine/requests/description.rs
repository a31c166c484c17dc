use std::time::Duration;

use redlock_core::{Slot, Timestamp, Token};

use super::request::Request;
use crate::Key;

/// A lock that this process holds or asks the nodes for. Made by [`Redlock::held`](crate::Redlock::held).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalLock {
    /// The keys, with their prefix. Of a permit, the key of its semaphore.
    pub keys: Vec<Key>,
    /// The [purpose](crate::LockOptions::label) of the lock.
    pub label: Option<&'static str>,
    /// How it is held. `None` while the nodes are asked for it.
    pub hold: Option<LocalHold>,
    /// How many requests of this process wait behind it.
    pub waiting: usize,
}

/// How this process holds a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalHold {
    /// The token in the value of the key.
    pub token: Token,
    /// For how long the present holder has had it.
    pub age: Duration,
    /// How long it is still valid.
    pub remaining: Duration,
    /// The slot, if it is a permit.
    pub slot: Option<usize>,
    /// Whether readers share it.
    pub is_reader: bool,
}

impl Request {
    /// Describes the lock to people. `waiting` is how many requests wait behind it.
    pub(crate) fn describe(&self, now: Timestamp, waiting: usize) -> LocalLock {
        let until = self.lease.valid_until(now);
        let hold = self.held().map(|held| LocalHold {
            token: self.lease.token(),
            age: now.saturating_duration_since(held.since),
            remaining: until.map_or(Duration::ZERO, |it| it.saturating_duration_since(now)),
            slot: self.lease.slot().map(Slot::index),
            is_reader: self.lease.is_reader(),
        });
        LocalLock {
            keys: self.keys.iter().cloned().collect(),
            label: self.label(),
            hold,
            waiting,
        }
    }
}
