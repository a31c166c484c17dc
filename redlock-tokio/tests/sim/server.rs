//! A simulated server: its keys, its clock, and what it does with commands.

mod contents;
mod faults;
mod identity;
mod lines;
mod readers;
mod refusal;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::Ttl;
use redlock_tokio::{
    FencingToken, Key, NodeError, Token,
    node::{Access, Answer, Command, Operation, Server as Described, Vote},
};

pub(crate) use self::{
    contents::Found, faults::Disk, identity::Withheld, refusal::Refusal, store::Entry,
};
use self::{
    identity::{Identity, NOWHERE, UP_FOR, age_of_marker},
    lines::Lines,
    readers::Mark,
    store::{Name, Store},
};
use crate::{
    clock::{MILLI, Rate},
    message::{ConnectionId, refused},
    requests::ServiceId,
};

/// What became of a server that does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outage {
    /// Its process has ended, and its machine refuses connections.
    Refuses,
    /// Its machine is gone, and answers nothing.
    Silent,
}

/// What a command comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) connection: ConnectionId,
    pub(crate) service: ServiceId,
}

/// What may cost a server its vote, or a lock its key there, if it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    outage: Option<Outage>,
    generation: u32,
    refusal: Option<Refusal>,
    withheld: Option<Withheld>,
    is_replica: bool,
    /// A history is as old as its marker.
    marked_at: Option<u64>,
    foreign_writes: u64,
}

/// One server.
pub(crate) struct Server {
    rate: Rate,
    /// How far its clock was stepped, in nanoseconds.
    stepped: u64,
    /// How far it was set back in all.
    set_back: u64,
    pub(crate) outage: Option<Outage>,
    /// When its last outage began.
    pub(crate) stopped_at: u64,
    /// Counts the times at which its connections ended. Those from before lead nowhere.
    pub(crate) generation: u32,
    identity: Identity,
    /// What it refuses for a while.
    pub(crate) refusal: Option<Refusal>,
    /// It carries out nothing before this time.
    pub(crate) stands_still_until: u64,
    /// Its answers are late until this time.
    pub(crate) slow_until: u64,
    /// How often a client that is not ours has set or deleted one of our keys.
    foreign_writes: u64,
    store: Store,
    /// The marks of writers that wait.
    marks: BTreeMap<Key, Mark>,
    /// When the markers of tenures were written, by their epochs, in milliseconds of its clock.
    tenures: BTreeMap<u64, u64>,
    lines: Lines,
    /// The connections that asked for a key, and hear when it is gone or shared. For each, whether the key was shared
    /// then.
    tracked: BTreeMap<Key, BTreeMap<ConnectionId, bool>>,
}

impl Server {
    pub(crate) fn new(number: u32, rate: Rate) -> Self {
        Self {
            rate,
            stepped: UP_FOR,
            set_back: 0,
            outage: None,
            stopped_at: 0,
            generation: 0,
            identity: Identity::new(number),
            refusal: None,
            stands_still_until: 0,
            slow_until: 0,
            foreign_writes: 0,
            store: Store::default(),
            marks: BTreeMap::new(),
            tenures: BTreeMap::new(),
            lines: Lines::default(),
            tracked: BTreeMap::new(),
        }
    }

    /// The same behind an authority, which has named it a master or a replica.
    pub(crate) fn named(mut self, in_cluster: bool, is_replica: bool) -> Self {
        self.identity.in_cluster = in_cluster;
        self.identity.master = is_replica.then_some(NOWHERE);
        self
    }

    /// Carries out a command. It grants one for several keys only if all of them agree.
    pub(crate) fn execute(&mut self, at: u64, from: Sender, command: &Command) -> Answer {
        if let Some(error) = self.refuse(command) {
            return Err(error);
        }
        if matches!(command.access(), Access::Reader { .. }) {
            return self.execute_for_reader(at, from, command);
        }
        let now = self.millis(at);
        if !matches!(command.operation(), Operation::Probe { .. }) {
            // A server deletes an expired key that it finds, so a clock set back does not revive it.
            let has_expired = |name: &Name, it: &Entry| !name.is_readers() && it.expires_at <= now;
            for key in command.keys() {
                self.store.remove_if(at, key, has_expired);
            }
        }
        let token = command.operation().token();
        let own: Vec<_> = command
            .keys()
            .filter(|key| self.has(now, key, token))
            .collect();
        let has_all = own.len() == command.key_count();
        let entry = |token, ttl: Ttl| Entry {
            token,
            expires_at: now + ttl.as_millis(),
            set_by: Some(from.service),
            set_at: at,
            ttl,
        };
        Ok(match command.operation() {
            Operation::Acquire { token, ttl, fence } => {
                let is_repair = command.key_count() > 1;
                let is_taken = |key: &Key| {
                    let is_own = is_repair && self.has(now, key, token);
                    !is_own && self.all_live(now, key).next().is_some()
                };
                if command.keys().any(is_taken) {
                    return Ok(Vote::Denied);
                }
                for key in command.keys() {
                    self.store.set(at, key, entry(token, ttl));
                }
                fence.map_or(Vote::Granted, |fence| {
                    self.raise_counters(at, command.keys(), fence)
                })
            }
            Operation::Adopt {
                giver,
                token,
                ttl,
                fence,
            } => {
                let key = command.key();
                if !self.has(now, key, giver) {
                    return Ok(Vote::Denied);
                }
                self.store.set(at, key, entry(token, ttl));
                fence.map_or(Vote::Granted, |fence| {
                    self.raise_counters(at, command.keys(), fence)
                })
            }
            Operation::Fence { fence, .. } => {
                let vote = self.raise_counters(at, own.into_iter(), fence);
                if has_all { vote } else { Vote::Denied }
            }
            Operation::Extend { ttl, shortens, .. } => {
                let mut remaining = u64::MAX;
                for key in own {
                    if let Some(mut entry) = self.live(now, key) {
                        remaining = remaining.min(entry.expires_at - now);
                        let expires_at = now + ttl.as_millis();
                        if shortens || entry.expires_at < expires_at {
                            entry.expires_at = expires_at;
                        }
                        entry.set_at = at;
                        self.store.set(at, key, entry);
                    }
                }
                if !has_all {
                    return Ok(Vote::Denied);
                }
                self.track(now, from.connection, command);
                Vote::Extended {
                    remaining: Duration::from_millis(remaining),
                }
            }
            Operation::Release { .. } => {
                if command.access() == Access::Writer {
                    self.delete_mark(command);
                }
                for key in own {
                    self.store.remove(at, key);
                }
                if has_all { Vote::Granted } else { Vote::Denied }
            }
            Operation::Probe { .. } => self.probe(now, from.connection, command),
            _ => return Err(refused("ERR", "unknown command")),
        })
    }

    fn refuse(&self, command: &Command) -> Option<NodeError> {
        let error = self.refusal.and_then(|it| it.answer(command));
        let is_write = !matches!(command.operation(), Operation::Probe { .. });
        error.or_else(|| self.refuse_write().filter(|_| is_write))
    }

    /// Returns why it neither writes nor reads a marker, if it refuses that.
    pub(crate) fn refuse_marker(&self) -> Option<NodeError> {
        let error = self.refusal.and_then(Refusal::of_marker);
        error.or_else(|| self.refuse_write())
    }

    fn refuse_write(&self) -> Option<NodeError> {
        let is_replica = self.is_replica();
        is_replica.then(|| refused("READONLY", "a replica takes no writes"))
    }

    fn probe(&mut self, now: u64, from: ConnectionId, command: &Command) -> Vote {
        if command.probes_slots() {
            self.track(now, from, command);
            let left = |key| {
                let entry = self.live(now, key)?;
                Some(Duration::from_millis(entry.expires_at - now))
            };
            let slots = command.probed_slots();
            return Vote::slots(slots.map(|(slot, key)| (slot, left(key))));
        }
        let ends = command.keys().flat_map(|key| self.all_live(now, key));
        match ends.map(|it| it.expires_at).max() {
            None => Vote::Free,
            Some(end) => {
                self.track(now, from, command);
                Vote::Taken {
                    remaining: Duration::from_millis(end - now),
                    by: None,
                }
            }
        }
    }

    fn track(&mut self, now: u64, from: ConnectionId, command: &Command) {
        for key in command.keys() {
            let is_shared = self.live(now, key).is_none();
            let trackers = self.tracked.entry(key.clone()).or_default();
            trackers.insert(from, is_shared);
        }
    }

    /// Takes the connections that asked for a key which is gone, or which was not shared and is so now.
    pub(crate) fn take_trackers(&mut self, at: u64, key: &Key) -> BTreeSet<ConnectionId> {
        let now = self.millis(at);
        let (is_taken, is_alone) = (
            self.all_live(now, key).next().is_some(),
            self.live(now, key).is_some(),
        );
        let Some(trackers) = self.tracked.remove(key) else {
            return BTreeSet::new();
        };
        let is_told = |was_shared: bool| !is_taken || (!is_alone && !was_shared);
        let (told, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) =
            trackers.into_iter().partition(|it| is_told(it.1));
        if !waiting.is_empty() {
            self.tracked.insert(key.clone(), waiting);
        }
        told.into_keys().collect()
    }

    /// Returns in how much true time a key expires, if it exists and somebody asked for it.
    pub(crate) fn expires_in(&self, at: u64, key: &Key) -> Option<u64> {
        let ends = self.all_live(self.millis(at), key);
        let end = ends.map(|it| it.expires_at).max()?;
        self.tracked.contains_key(key).then_some(())?;
        let left = (end * MILLI).saturating_sub(self.local(at));
        Some(self.rate.true_time(left) + MILLI)
    }

    /// Returns what the server says of itself.
    pub(crate) fn describe(&self, at: u64) -> Described {
        match self.refusal.and_then(Refusal::of_info) {
            Some(error) => Described::Withheld(error),
            None => {
                let is_cut_off = self.refusal == Some(Refusal::MasterDown);
                self.identity.describe(self.local(at), is_cut_off)
            }
        }
    }

    /// Returns for how long the history exists by its marker, which is written if there is none.
    pub(crate) fn history_age(&mut self, at: u64) -> Duration {
        let now = self.millis(at);
        age_of_marker(*self.identity.marked_at.get_or_insert(now), now)
    }

    /// Returns for how long it has its keys in a tenure by its marker, which is written if there is none.
    pub(crate) fn tenure_age(&mut self, at: u64, epoch: u64) -> Duration {
        let now = self.millis(at);
        age_of_marker(*self.tenures.entry(epoch).or_insert(now), now)
    }

    /// Returns whether it has a key, with this token, be it alone or among those of readers.
    pub(crate) fn holds(&self, at: u64, key: &Key, token: Token) -> bool {
        let mut live = self.all_live(self.millis(at), key);
        live.any(|it| it.token == token)
    }

    /// Returns how many keys have not expired.
    pub(crate) fn live_keys(&self, at: u64) -> usize {
        let now = self.millis(at);
        let entries = self.store.entries();
        entries.filter(|(_, it)| now < it.expires_at).count()
    }

    /// Returns the keys that a `Redlock` has set, and that have not expired.
    pub(crate) fn owned_by(
        &self,
        at: u64,
        service: ServiceId,
    ) -> impl Iterator<Item = (&Key, &Entry)> {
        let now = self.millis(at);
        let entries = self.store.entries();
        let owned =
            entries.filter(move |(_, it)| now < it.expires_at && it.set_by == Some(service));
        owned.map(|(name, it)| (&name.key, it))
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.identity.master.is_some()
    }

    pub(crate) fn condition(&self) -> Condition {
        Condition {
            outage: self.outage,
            generation: self.generation,
            refusal: self.refusal,
            withheld: self.identity.withholds,
            is_replica: self.is_replica(),
            marked_at: self.identity.marked_at,
            foreign_writes: self.foreign_writes,
        }
    }

    /// Raises the counters that are smaller than the fence.
    fn raise_counters<'a>(
        &mut self,
        at: u64,
        keys: impl Iterator<Item = &'a Key>,
        fence: FencingToken,
    ) -> Vote {
        let mut largest = None;
        for key in keys {
            match self.store.counter(key) {
                Some(counter) if counter >= fence => largest = largest.max(Some(counter)),
                _ => self.store.set_counter(at, key, fence),
            }
        }
        largest.map_or(Vote::Granted, |counter| Vote::Outbid { counter })
    }

    fn has(&self, now: u64, key: &Key, token: Token) -> bool {
        self.live(now, key).is_some_and(|it| it.token == token)
    }

    /// Returns the entry of a key that one token has alone.
    fn live(&self, now: u64, key: &Key) -> Option<Entry> {
        let entry = self.store.get(&Name::alone(key));
        entry.filter(|it| now < it.expires_at)
    }

    /// Returns all entries of a key: one, or those of its readers.
    fn all_live(&self, now: u64, key: &Key) -> impl Iterator<Item = Entry> {
        let entries = self.store.of_key(key).map(|(_, it)| *it);
        entries.filter(move |it| now < it.expires_at)
    }

    /// Floored to milliseconds, and a key is dead *at* its end: the shortest life that `PX ttl` can mean.
    pub(crate) fn millis(&self, at: u64) -> u64 {
        self.local(at) / MILLI
    }

    fn local(&self, at: u64) -> u64 {
        self.stepped + self.rate.local(at)
    }
}
