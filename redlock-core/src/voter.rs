use core::time::Duration;

use crate::{Eligibility, Quarantine, Replication, RunId, Sighting, Timestamp};

/// One node as a voter: what its driver has seen of it, and so what its votes are worth.
///
/// A driver keeps one for each node, from the start of the client to its end. It reports what the
/// node says of itself on each new connection
/// ([`handle_connection`](Self::handle_connection)) and about once a second while that connection
/// lasts ([`handle_sighting`](Self::handle_sighting)). With each reply it hands the
/// [`eligibility`](Self::eligibility) of that moment to the lease. A [`Withdrawal`] goes to every
/// lease that is not closed.
///
/// What the voter decides:
///
/// - A node that came up less than the [`Quarantine`] ago has no vote (Redlock, "Performance, crash
///   recovery and fsync").
/// - A node that may have been promoted less than that ago has none either. The replica may lack a
///   lock that its master had, and neither its `run_id` nor its uptime changes with the promotion.
///   Its history does: see [`Replication::continues`]. A [`HistoryMarker`](crate::HistoryMarker)
///   shows that the promotion was long enough ago.
/// - A node that is another one than before waits from now on, by the client's own clock.
///
/// It cannot see two masters at once, nor a node that was a replica between two looks on one
/// connection and has no trace of it left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    quarantine: Quarantine,
    memory: Memory,
    /// What a node does not tell is taken for harmless.
    allows_unvetted: bool,
    last: Option<Seen>,
    eligibility: Eligibility,
    /// It was seen in a state from which it may come back without our keys.
    distrusted: bool,
}

/// What a node remembers when it restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Memory {
    /// It may forget keys.
    Volatile,
    /// It writes to disk before it answers.
    Durable,
    /// It may forget keys, and votes all the same.
    Trusted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    asked_at: Timestamp,
    run_id: RunId,
    uptime: Option<Duration>,
    replication: Option<Replication>,
}

/// The news that some of a node's votes count for nothing.
///
/// Another server may have given them, which may not know the locks that the first one knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Withdrawal {
    /// Votes that were answered later than this are withdrawn: then the node was last asked what it
    /// is, and was the one it had been.
    pub since: Timestamp,
    /// What the node's votes are worth from now on.
    pub eligibility: Eligibility,
}

impl Voter {
    /// Creates a node that was not seen yet and may forget keys when it restarts.
    #[must_use]
    pub const fn new(quarantine: Quarantine) -> Self {
        Self {
            quarantine,
            memory: Memory::Volatile,
            allows_unvetted: false,
            last: None,
            eligibility: Eligibility::ALWAYS,
            distrusted: false,
        }
    }

    /// Creates a node that forgets nothing when it restarts, because it writes to disk before it
    /// answers. It need not wait then; but it must if another server took its place, or if its clock
    /// has stepped.
    ///
    /// Its history is not looked at, since a restart from a snapshot begins a new one: durable nodes
    /// must not have replicas that can be promoted.
    #[must_use]
    pub const fn durable(quarantine: Quarantine) -> Self {
        Self {
            memory: Memory::Durable,
            ..Self::new(quarantine)
        }
    }

    /// Creates a node whose votes always count, though it may have forgotten a lock: for tests.
    #[must_use]
    pub const fn trusted(quarantine: Quarantine) -> Self {
        Self {
            memory: Memory::Trusted,
            ..Self::new(quarantine)
        }
    }

    /// Takes for harmless what the node does not tell. Otherwise it waits from its first sight on if
    /// it does not tell its uptime or its history.
    #[must_use]
    pub const fn allowing_unvetted(mut self) -> Self {
        self.allows_unvetted = true;
        self
    }

    /// Returns whether the [age](Sighting::history_age) of a history is of use on the next
    /// connection, so that the driver must look for it.
    #[must_use]
    pub fn needs_history_age(&self, replication: Replication) -> bool {
        self.memory == Memory::Volatile && replication.continues.is_some()
    }

    /// Returns whether it is of use that the node tells its uptime and its history.
    #[must_use]
    pub fn needs_vetting(&self) -> bool {
        self.memory == Memory::Volatile && !self.allows_unvetted
    }

    /// Notes what the node says of itself on a new connection, before its first vote. `now` must be
    /// read *after* the answer came.
    pub fn handle_connection(&mut self, now: Timestamp, sighting: &Sighting) -> Option<Withdrawal> {
        let change = match self.last {
            _ if self.distrusted => Change::Server,
            None => {
                self.eligibility = self.at_first_sight(now, sighting);
                self.remember(sighting);
                return None;
            }
            Some(last) => last.compare(now, sighting),
        };
        // A connection does not outlive its server's process, so what came over the last one was
        // said by the process that was seen on it.
        self.apply(now, sighting, change, change != Change::Restart)
    }

    /// Notes what the node says of itself while a connection lasts, about once a second. `now` must
    /// be read *after* the answer came.
    pub fn handle_sighting(&mut self, now: Timestamp, sighting: &Sighting) -> Option<Withdrawal> {
        let Some(last) = self.last.filter(|_| !self.distrusted) else {
            return self.handle_connection(now, sighting);
        };
        let change = last.compare(now, sighting);
        self.apply(now, sighting, change, true)
    }

    /// Notes that the node was seen as what may drop our keys without a restart, such as a replica.
    /// When it is a master again, its quarantine starts then.
    pub fn handle_demotion(&mut self, now: Timestamp) -> Option<Withdrawal> {
        let was_known = core::mem::replace(&mut self.distrusted, true);
        if was_known || self.memory == Memory::Trusted {
            return None;
        }
        self.eligibility = self.after_quarantine(now);
        self.last.map(|last| self.withdrawal(last))
    }

    /// Returns what the node's votes are worth, for replies that come now.
    #[must_use]
    pub const fn eligibility(&self) -> Eligibility {
        self.eligibility
    }

    fn apply(
        &mut self,
        now: Timestamp,
        sighting: &Sighting,
        change: Change,
        withdraws: bool,
    ) -> Option<Withdrawal> {
        let last = self.last;
        self.remember(sighting);
        let must_wait = match (self.memory, change) {
            (Memory::Trusted, _) | (_, Change::None) => false,
            (Memory::Durable, change) => !matches!(change, Change::Restart | Change::History),
            (Memory::Volatile, _) => true,
        };
        if !must_wait {
            return None;
        }
        self.eligibility = self.after_quarantine(now);
        last.filter(|_| withdraws).map(|last| self.withdrawal(last))
    }

    fn remember(&mut self, sighting: &Sighting) {
        self.distrusted = false;
        self.last = Some(Seen {
            asked_at: sighting.asked_at,
            run_id: sighting.run_id,
            uptime: sighting.uptime,
            replication: sighting.replication,
        });
    }

    fn withdrawal(&self, last: Seen) -> Withdrawal {
        Withdrawal {
            since: last.asked_at,
            eligibility: self.eligibility,
        }
    }

    fn at_first_sight(&self, now: Timestamp, sighting: &Sighting) -> Eligibility {
        if self.memory != Memory::Volatile {
            return Eligibility::ALWAYS;
        }
        let untold = || {
            if self.allows_unvetted {
                now
            } else {
                self.quarantine.ends_at(now, Duration::ZERO)
            }
        };
        let by_uptime = sighting
            .uptime
            .map_or_else(untold, |uptime| self.quarantine.eligible_at(now, uptime));
        let by_history = match sighting.replication {
            None => untold(),
            Some(Replication {
                continues: None, ..
            }) => now,
            Some(Replication {
                continues: Some(_), ..
            }) => {
                let age = sighting.history_age.unwrap_or_default();
                self.quarantine.ends_at(now, age)
            }
        };
        let at = by_uptime.max(by_history);
        if at <= now {
            // A request may have been made while the connection was opened.
            Eligibility::ALWAYS
        } else {
            Eligibility::since(at)
        }
    }

    fn after_quarantine(&self, now: Timestamp) -> Eligibility {
        Eligibility::since(self.quarantine.ends_at(now, Duration::ZERO))
    }
}

/// What has become of a node since it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// It came up since.
    Restart,
    /// The same server, with a history that continues another: it was promoted.
    History,
    /// The same server, whose clock has stepped, by which it also counts the life of keys.
    Clock,
    /// Another server that was up already, such as a replica that was promoted. However long it is
    /// up, it may lack our keys.
    Server,
}

impl Seen {
    fn compare(&self, now: Timestamp, sighting: &Sighting) -> Change {
        // Rounding to seconds may add one, and clocks may differ in rate, by up to a hundredth as
        // everywhere. Counted from the question: the answer may have been given right then.
        let passed = now.saturating_duration_since(self.asked_at);
        let passed_at_most = passed
            .saturating_add(passed / 100)
            .saturating_add(Duration::from_secs(1));
        if self.run_id != sighting.run_id {
            return match sighting.uptime {
                Some(uptime) if uptime <= passed_at_most => Change::Restart,
                _ => Change::Server,
            };
        }
        if let (Some(before), Some(after)) = (self.replication, sighting.replication)
            && before.id != after.id
            && after.continues.is_some()
        {
            return Change::History;
        }
        match (self.uptime, sighting.uptime) {
            (Some(before), Some(after)) if after.saturating_sub(before) > passed_at_most => {
                Change::Clock
            }
            _ => Change::None,
        }
    }
}
