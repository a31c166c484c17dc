//! A simulated master: its keys, its clock, and what it says of itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::AgeMarker;
use redlock_tokio::{
    Answer, Command, FencingToken, Key, NodeError, Operation, Origin, Replication, ReplicationId,
    RunId, Server as Described, ServerInfo, Token, Vote,
};

use crate::{
    clock::{MILLI, Rate, SECOND},
    network::ConnectionId,
};

/// What became of a server that does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outage {
    /// Its process has ended, and its machine refuses connections.
    Refuses,
    /// Its machine is gone, and answers nothing.
    Silent,
}

/// One server.
pub(crate) struct Server {
    rate: Rate,
    /// How far its clock was stepped, in nanoseconds.
    stepped: u64,
    pub(crate) outage: Option<Outage>,
    /// Numbers its processes, and the histories of its keys. No other server has the same numbers.
    pub(crate) incarnation: u32,
    /// When its process started, on its clock.
    started_at: u64,
    /// Whether its history continues that of a master which it was a replica of.
    is_promoted: bool,
    /// When the marker of its history was written, on its clock.
    marked_at: Option<u64>,
    entries: BTreeMap<Key, Entry>,
    counters: BTreeMap<Key, FencingToken>,
    /// The connections that asked for a key, and hear when it is gone.
    tracked: BTreeMap<Key, BTreeSet<ConnectionId>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    /// In milliseconds of its clock.
    expires_at: u64,
}

/// How long ago its process has started at the beginning of a run. A fleet that has just started is a fault of its
/// own.
const UP_FOR: u64 = 100_000 * SECOND;

impl Server {
    pub(crate) fn new(number: u32, rate: Rate) -> Self {
        Self {
            rate,
            stepped: UP_FOR,
            outage: None,
            incarnation: (number + 1) * 1_000_000,
            started_at: 0,
            is_promoted: false,
            marked_at: None,
            entries: BTreeMap::new(),
            counters: BTreeMap::new(),
            tracked: BTreeMap::new(),
        }
    }

    /// Carries out a command, for all its keys or for none.
    pub(crate) fn execute(&mut self, at: u64, from: ConnectionId, command: &Command) -> Answer {
        let now = self.millis(at);
        Ok(match command.operation() {
            Operation::Acquire { token, ttl, fence } => {
                let is_repair = command.key_count() > 1;
                let is_taken = |key: &Key| {
                    let live = self.live(now, key);
                    live.is_some_and(|it| !(is_repair && it.token == token))
                };
                if command.keys().any(is_taken) {
                    return Ok(Vote::Denied);
                }
                let expires_at = now + ttl.as_millis();
                for key in command.keys() {
                    self.entries
                        .insert(key.clone(), Entry { token, expires_at });
                }
                fence.map_or(Vote::Granted, |fence| {
                    self.raise_counter(command.key(), fence)
                })
            }
            Operation::Fence { token, fence } => {
                if self.has(now, command.key(), token) {
                    self.raise_counter(command.key(), fence)
                } else {
                    Vote::Denied
                }
            }
            Operation::Extend { token, ttl } => {
                if !command.keys().all(|key| self.has(now, key, token)) {
                    return Ok(Vote::Denied);
                }
                let mut remaining = u64::MAX;
                for key in command.keys() {
                    if let Some(entry) = self.entries.get_mut(key) {
                        remaining = remaining.min(entry.expires_at - now);
                        entry.expires_at = entry.expires_at.max(now + ttl.as_millis());
                    }
                }
                Vote::Extended {
                    remaining: Duration::from_millis(remaining),
                }
            }
            Operation::Release { token } => {
                let mut released = 0;
                for key in command.keys() {
                    if self.has(now, key, token) {
                        self.entries.remove(key);
                        released += 1;
                    }
                }
                if released == command.key_count() {
                    Vote::Granted
                } else {
                    Vote::Denied
                }
            }
            Operation::Probe { .. } => self.probe(now, from, command),
            _ => {
                return Err(NodeError::Refused {
                    code: "ERR".into(),
                    message: "unknown command".into(),
                });
            }
        })
    }

    fn probe(&mut self, now: u64, from: ConnectionId, command: &Command) -> Vote {
        let ends = command.keys().filter_map(|key| self.live(now, key));
        match ends.map(|it| it.expires_at).max() {
            None => Vote::Free,
            Some(end) => {
                for key in command.keys() {
                    self.tracked.entry(key.clone()).or_default().insert(from);
                }
                Vote::Taken {
                    remaining: Duration::from_millis(end - now),
                }
            }
        }
    }

    /// Takes the connections that asked for a key which is gone.
    pub(crate) fn take_trackers(&mut self, at: u64, key: &Key) -> BTreeSet<ConnectionId> {
        if self.live(self.millis(at), key).is_some() {
            return BTreeSet::new();
        }
        self.tracked.remove(key).unwrap_or_default()
    }

    /// Returns in how much true time a key expires, if it exists and somebody asked for it.
    pub(crate) fn expires_in(&self, at: u64, key: &Key) -> Option<u64> {
        let entry = self.live(self.millis(at), key)?;
        self.tracked.contains_key(key).then_some(())?;
        let left = (entry.expires_at * MILLI).saturating_sub(self.local(at));
        Some(self.rate.true_time(left) + MILLI)
    }

    /// Returns what the server says of itself.
    pub(crate) fn describe(&self, at: u64) -> Described {
        // The difference of two whole seconds, as `INFO` has it.
        let uptime = self.local(at) / SECOND - self.started_at / SECOND;
        let mut info = ServerInfo::new(
            RunId::new(digits(self.incarnation)),
            Duration::from_secs(uptime),
        );
        let origin = if self.is_promoted {
            Origin::Continues(ReplicationId::new(digits(self.incarnation.wrapping_sub(1))))
        } else {
            Origin::Own
        };
        info.replication = Some(Replication {
            id: ReplicationId::new(digits(self.incarnation)),
            origin,
        });
        Described::Known(info)
    }

    /// Returns for how long the history exists by its marker, which is written if there is none.
    pub(crate) fn history_age(&mut self, at: u64) -> Duration {
        let now = self.millis(at);
        let passed = now - *self.marked_at.get_or_insert(now);
        let left = AgeMarker::TTL_MILLIS.saturating_sub(passed);
        let marker = AgeMarker::read(b"0", i64::try_from(left).expect("a day"));
        marker.map(AgeMarker::age).unwrap_or_default()
    }

    /// Ends its process. Everything that is not on disk is lost.
    pub(crate) fn stop(&mut self, outage: Outage) {
        self.outage = Some(outage);
        self.tracked.clear();
    }

    /// Starts it again, with its keys or without them.
    pub(crate) fn start(&mut self, at: u64, keeps_keys: bool) {
        self.outage = None;
        self.incarnation += 1;
        self.started_at = self.local(at);
        self.is_promoted = false;
        self.marked_at = None;
        self.tracked.clear();
        if !keeps_keys {
            self.entries.clear();
        }
    }

    /// Returns how many keys have not expired.
    pub(crate) fn live_keys(&self, at: u64) -> usize {
        let now = self.millis(at);
        self.entries
            .values()
            .filter(|it| now < it.expires_at)
            .count()
    }

    fn raise_counter(&mut self, key: &Key, fence: FencingToken) -> Vote {
        match self.counters.get(key) {
            Some(&counter) if counter >= fence => Vote::Outbid { counter },
            _ => {
                self.counters.insert(key.clone(), fence);
                Vote::Granted
            }
        }
    }

    fn has(&self, now: u64, key: &Key, token: Token) -> bool {
        self.live(now, key).is_some_and(|it| it.token == token)
    }

    fn live(&self, now: u64, key: &Key) -> Option<Entry> {
        self.entries
            .get(key)
            .copied()
            .filter(|it| now < it.expires_at)
    }

    /// Floored to milliseconds, and a key is dead *at* its end: the shortest life that `PX ttl` can mean.
    fn millis(&self, at: u64) -> u64 {
        self.local(at) / MILLI
    }

    fn local(&self, at: u64) -> u64 {
        self.stepped + self.rate.local(at)
    }
}

/// Forty digits that tell this number from all others.
fn digits(number: u32) -> [u8; 40] {
    let text = format!("{number:040}");
    text.as_bytes().try_into().expect("forty digits")
}
