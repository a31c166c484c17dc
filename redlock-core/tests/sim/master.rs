//! A master as the algorithm sees it: keys that expire, compare-and-delete, fencing counters.

use std::{collections::HashMap, time::Duration};

use redlock_core::{
    AgeMarker, FencingToken, Operation, Origin, Replication, ReplicationId, RunId, Token,
};

use crate::clock::{Clock, MILLI, SECOND};

/// What a client asks a master for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: usize,
    /// The number of the lease it is for; only the checker looks at it.
    pub(crate) lease: usize,
    pub(crate) operation: Operation,
}

/// What a master answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Granted,
    Denied,
    Outbid(FencingToken),
    Free,
    /// For so many milliseconds of the master's clock.
    Taken(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    pub(crate) lease: usize,
    /// In milliseconds of the master's clock, as Redis counts.
    expires_at: u64,
}

/// What a replica has of its master.
pub(crate) struct Copies {
    entries: Vec<Option<Entry>>,
    counters: Vec<Option<FencingToken>>,
}

pub(crate) struct Master {
    pub(crate) clock: Clock,
    pub(crate) up: bool,
    /// Which process it is: connections do not outlive it.
    pub(crate) incarnation: u32,
    /// When the process came up, on the master's clock.
    started_at: u64,
    /// Whether it is a replica that was promoted.
    is_promoted: bool,
    /// When the marker of its history was written, on the master's clock.
    marked_at: Option<u64>,
    entries: Vec<Option<Entry>>,
    counters: Vec<Option<FencingToken>>,
    /// It follows another server, and serves nobody.
    pub(crate) is_replica: bool,
    /// When the marker of each tenure was written, on the master's clock.
    tenures_marked_at: HashMap<u64, u64>,
    /// When it last forgot keys early and could vote all the same, which the algorithm's
    /// assumptions exclude. In true time.
    pub(crate) forgot_keys_at: Option<u64>,
    /// It has lost its fencing counters.
    pub(crate) forgot_counters: bool,
}

impl Master {
    pub(crate) fn new(clock: Clock, keys: usize) -> Self {
        Self {
            clock,
            up: true,
            incarnation: 0,
            // Long enough ago to be trusted: a cold fleet is a fault of its own.
            started_at: 0,
            is_promoted: false,
            marked_at: None,
            entries: vec![None; keys],
            counters: vec![None; keys],
            is_replica: false,
            tenures_marked_at: HashMap::new(),
            forgot_keys_at: None,
            forgot_counters: false,
        }
    }

    pub(crate) fn execute(&mut self, at: u64, request: &Request) -> Vote {
        // Both ends floored to milliseconds and dead *at* the deadline: the shortest life that
        // `PX ttl` can mean.
        let now = self.clock.local(at) / MILLI;
        let key = request.key;
        let live = self.entries[key].as_mut().filter(|it| now < it.expires_at);
        match request.operation {
            Operation::Acquire {
                token, ttl, fence, ..
            } => {
                if live.is_some() {
                    return Vote::Denied;
                }
                self.entries[key] = Some(Entry {
                    token,
                    lease: request.lease,
                    expires_at: now + ttl.as_millis(),
                });
                fence.map_or(Vote::Granted, |fence| self.raise_counter(key, fence))
            }
            Operation::Fence { token, fence } => match live {
                Some(entry) if entry.token == token => self.raise_counter(key, fence),
                _ => Vote::Denied,
            },
            Operation::Extend { token, ttl } => match live {
                Some(entry) if entry.token == token => {
                    entry.expires_at = entry.expires_at.max(now + ttl.as_millis());
                    Vote::Granted
                }
                _ => Vote::Denied,
            },
            Operation::Release { token } => match live {
                Some(entry) if entry.token == token => {
                    self.entries[key] = None;
                    Vote::Granted
                }
                _ => Vote::Denied,
            },
            Operation::Probe { .. } => match live {
                Some(entry) => Vote::Taken(entry.expires_at - now),
                None => Vote::Free,
            },
            other => unreachable!("the simulator knows all operations: {other:?}"),
        }
    }

    pub(crate) fn crash(&mut self) {
        self.up = false;
        self.tenures_marked_at.clear();
        self.entries.fill(None);
    }

    /// Comes up again, empty. The counters are durable unless the operator made them not so.
    pub(crate) fn restart(&mut self, at: u64, keep_counters: bool) {
        self.up = !self.is_replica;
        self.incarnation += 1;
        self.started_at = self.clock.local(at);
        self.is_promoted = false;
        self.marked_at = None;
        if !keep_counters {
            self.forget_counters();
        }
    }

    /// A replica that is up for long takes its place, without the keys that it lacks.
    pub(crate) fn promote(&mut self, lacks: impl Fn(usize) -> bool) {
        self.incarnation += 1;
        self.started_at = 0;
        self.is_promoted = true;
        self.marked_at = None;
        for (key, entry) in self.entries.iter_mut().enumerate() {
            entry.take_if(|_| lacks(key));
        }
    }

    /// It becomes a replica, which serves nobody.
    pub(crate) fn demote(&mut self) {
        self.up = false;
        self.is_replica = true;
        self.incarnation += 1;
        self.entries.fill(None);
        self.tenures_marked_at.clear();
    }

    /// What its replica would have if nothing was under way: its keys, with the milliseconds that they have
    /// left, and its counters.
    pub(crate) fn replicated(&self, at: u64) -> Copies {
        let now = self.clock.local(at) / MILLI;
        let mut entries = vec![None; self.entries.len()];
        for (key, entry) in self.live(at) {
            let expires_at = entry.expires_at - now;
            entries[key] = Some(Entry {
                expires_at,
                ..entry
            });
        }
        Copies {
            entries,
            counters: self.counters.clone(),
        }
    }

    /// A replica becomes the owner, without the keys that it lacks.
    pub(crate) fn take_over(&mut self, at: u64, copies: Copies, lacks: impl Fn(usize) -> bool) {
        let now = self.clock.local(at) / MILLI;
        self.up = true;
        self.is_replica = false;
        self.entries = copies.entries;
        for entry in self.entries.iter_mut().flatten() {
            entry.expires_at += now;
        }
        self.counters = copies.counters;
        self.promote(lacks);
    }

    /// Returns the age of the marker of a tenure, which is written if there is none.
    pub(crate) fn tenure_age(&mut self, at: u64, epoch: u64) -> Duration {
        let now = self.clock.local(at) / MILLI;
        age(now - *self.tenures_marked_at.entry(epoch).or_insert(now))
    }

    /// Which process this is, in the words of `INFO`.
    pub(crate) fn run_id(&self) -> RunId {
        RunId::new(digits(self.incarnation))
    }

    /// The history of its keys, in the words of `INFO`.
    pub(crate) fn replication(&self) -> Replication {
        let before = self.incarnation.wrapping_sub(1);
        let origin = if self.is_promoted {
            Origin::Continues(ReplicationId::new(digits(before)))
        } else {
            Origin::Own
        };
        Replication {
            id: ReplicationId::new(digits(self.incarnation)),
            origin,
        }
    }

    /// Returns for how long the history exists by its marker, which is written if there is none.
    pub(crate) fn history_age(&mut self, at: u64) -> Duration {
        let now = self.clock.local(at) / MILLI;
        let passed = now - *self.marked_at.get_or_insert(now);
        age(passed)
    }

    /// `FLUSHALL`: everything is gone, and no client can see that it is.
    pub(crate) fn flush(&mut self, at: u64) {
        self.entries.fill(None);
        self.forgot_keys_at = Some(at);
        self.forget_counters();
    }

    /// Returns `uptime_in_seconds`: the difference of two whole seconds, as `INFO` computes it.
    pub(crate) fn uptime(&self, at: u64) -> u64 {
        self.clock.local(at) / SECOND - self.started_at / SECOND
    }

    /// Returns the keys that have not expired.
    pub(crate) fn live(&self, at: u64) -> impl Iterator<Item = (usize, Entry)> {
        let now = self.clock.local(at) / MILLI;
        let entries = self.entries.iter().enumerate();
        entries.filter_map(move |(key, it)| Some((key, it.filter(|it| now < it.expires_at)?)))
    }

    fn forget_counters(&mut self) {
        self.counters.fill(None);
        self.forgot_counters = true;
    }

    fn raise_counter(&mut self, key: usize, fence: FencingToken) -> Vote {
        match self.counters[key] {
            Some(counter) if counter >= fence => Vote::Outbid(counter),
            _ => {
                self.counters[key] = Some(fence);
                Vote::Granted
            }
        }
    }
}

/// The age by a marker that was written so many milliseconds ago.
fn age(passed: u64) -> Duration {
    let left = AgeMarker::TTL_MILLIS.saturating_sub(passed);
    let marker = AgeMarker::read(b"0", i64::try_from(left).expect("a day"));
    marker.map(AgeMarker::age).unwrap_or_default()
}

/// Forty digits that tell this number from all others.
fn digits(number: u32) -> [u8; 40] {
    let text = format!("{number:040}");
    text.as_bytes().try_into().expect("forty digits")
}
