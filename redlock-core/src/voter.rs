use core::time::Duration;

use crate::{
    Check, Checks, Eligibility, Origin, Quarantine, Replication, ServerRole, Sighting, Timestamp,
};

/// Decides what one node's votes are worth.
///
/// An [`Electorate`](crate::Electorate) keeps a clone of the voter for each node. Most drivers
/// only create one voter and pass it to [`Electorate::new`](crate::Electorate::new).
///
/// A driver without an electorate keeps one voter for each node, from the start of the client to its
/// end. The driver reports what the node says of itself on each new connection
/// ([`handle_connection`](Self::handle_connection)) and about once a second while that connection
/// lasts ([`handle_sighting`](Self::handle_sighting)). With each reply the driver passes the
/// [`eligibility`](Self::eligibility) of that moment to the lease. The driver passes each
/// [`Withdrawal`] to every lease that is not closed.
///
/// The voter decides by these rules:
///
/// - A node that came up less than the [`Quarantine`] ago has no vote (Redlock, "Performance, crash
///   recovery and fsync").
/// - A node that may have been promoted less than that ago has no vote either. The replica may lack a
///   lock that its master had, and neither its `run_id` nor its uptime changes with the promotion.
///   Its history does: see [`Origin::Continues`]. A [`AgeMarker`](crate::AgeMarker)
///   shows that the promotion was long enough ago.
/// - If another server has taken the node's place, the quarantine starts now, by the client's own
///   clock. Where a server does not say its `run_id`, its history shows which server it is. A history
///   that begins anew without a promotion then looks like another server, which costs a quarantine.
///
/// A voter cannot detect two masters at once. Nor can it detect a node that became a replica and a
/// master again between two checks, if `INFO` no longer shows that.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::*;
///
/// let max_ttl = Ttl::new(Duration::from_secs(10))?;
/// let mut voter = Voter::new(Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO)));
/// let now = Timestamp::ZERO;
/// let sighting = Sighting {
///     asked_at: now,
///     run_id: Some(RunId::new([b'a'; RunId::LEN])),
///     uptime: Some(Duration::from_secs(3)), // it came up just now
///     replication: Some(Replication {
///         id: ReplicationId::new([b'b'; ReplicationId::LEN]),
///         origin: Origin::Own,
///     }),
///     history_age: None,
/// };
/// assert_eq!(voter.handle_connection(now, &sighting), None);
/// assert!(!voter.eligibility().covers(now));
/// # Ok::<(), TtlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    quarantine: Quarantine,
    memory: Memory,
    /// Whether a node may vote that does not say enough of itself.
    allows_unvetted: bool,
    last: Option<Seen>,
    eligibility: Eligibility,
    /// Whether the node was seen in a state from which it may come back without our keys.
    distrusted: bool,
}

/// How much a node remembers when it restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Memory {
    /// It may forget keys.
    Volatile,
    /// It writes to disk before it answers.
    Durable,
    /// The server that takes its place has every key that it has confirmed.
    Lossless,
    /// It may forget keys, and always votes.
    Trusted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    sighting: Sighting,
    /// When the answer had come.
    by: Timestamp,
}

/// The news that some of a node's votes count for nothing.
///
/// Another server may have given them, and it may not know the locks that the first one knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Withdrawal {
    /// Votes that were counted at this time or later are withdrawn. At this time the driver asked the
    /// last question to which the node answered as the same server.
    pub since: Timestamp,
    /// The worth of the node's votes from now on.
    pub eligibility: Eligibility,
}

impl Voter {
    /// Creates the voter for a node that was not seen yet and may forget keys when it restarts.
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

    /// Creates the voter for a node that keeps its keys across restarts, because it writes to disk before
    /// it answers. The node votes at once after a restart. It waits if another server took its place, or
    /// if its clock jumped.
    ///
    /// The node's history is ignored, because a restart from a snapshot starts a new one. So a durable node
    /// must have no replicas that can be promoted. An [`Electorate`](crate::Electorate) takes a node for one
    /// that may forget keys if an authority names its server: a failover loses keys, whatever the disk has.
    #[must_use]
    pub const fn durable(quarantine: Quarantine) -> Self {
        Self {
            memory: Memory::Durable,
            ..Self::new(quarantine)
        }
    }

    /// Creates the voter for a node whose failovers lose nothing, according to its vendor: whatever server takes its
    /// place has each key that was confirmed to a client, and the earlier server confirms nothing more. The node
    /// votes at once after a restart, after a promotion, and from another server. It waits if its clock jumped.
    ///
    /// A [durable](Self::durable) node is not such a node: what its disk keeps, its replica may lack.
    #[must_use]
    pub const fn lossless(quarantine: Quarantine) -> Self {
        Self {
            memory: Memory::Lossless,
            ..Self::new(quarantine)
        }
    }

    /// Creates the voter for a node whose votes always count, although it may have forgotten a lock. For
    /// tests.
    #[must_use]
    pub const fn trusted(quarantine: Quarantine) -> Self {
        Self {
            memory: Memory::Trusted,
            ..Self::new(quarantine)
        }
    }

    /// Lets a node vote even if some of its [checks](Check) are unmet. Its other answers still count.
    ///
    /// Without this method, a node that does not report its uptime or its promotions has no vote for one
    /// quarantine after it is first seen, and an [`Electorate`](crate::Electorate) excludes it, unless its
    /// run id shows each restart. Neither rule applies to a [durable](Self::durable) or a
    /// [lossless](Self::lossless) node. An electorate also excludes a node that does not say which server it
    /// is, or its role.
    #[must_use]
    pub const fn allowing_unvetted(mut self) -> Self {
        self.allows_unvetted = true;
        self
    }

    /// Returns whether the driver must read the [age](Sighting::history_age) of the history.
    pub(crate) fn needs_history_age(&self, replication: Replication) -> bool {
        self.memory == Memory::Volatile && matches!(replication.origin, Origin::Continues(_))
    }

    /// Returns the voter for a node whose place a replica may take. It loses keys then, even if it keeps them
    /// across restarts.
    pub(crate) fn with_failovers(self) -> Self {
        let memory = match self.memory {
            Memory::Durable => Memory::Volatile,
            memory => memory,
        };
        Self { memory, ..self }
    }

    /// Returns whether a node that does not say what it is may vote.
    pub(crate) const fn allows_unvetted(&self) -> bool {
        self.allows_unvetted
    }

    /// Returns the checks that the rules need, and for which this sighting is not enough.
    pub(crate) fn unmet(&self, role: ServerRole, sighting: &Sighting) -> Checks {
        let is_volatile = self.memory == Memory::Volatile;
        // With its run id, a server whose start is unknown waits once, and each later restart shows.
        let shows_restarts = sighting.run_id.is_some() && !self.allows_unvetted;
        let origin = sighting
            .replication
            .map_or(Origin::Withheld, |replication| replication.origin);
        let is_unmet = |check: &Check| match check {
            Check::Server => sighting.server().is_unknown(),
            Check::Role => role == ServerRole::Withheld,
            Check::Start => is_volatile && sighting.uptime.is_none() && !shows_restarts,
            Check::Promotion => is_volatile && origin == Origin::Withheld,
        };
        Check::ALL.into_iter().filter(is_unmet).collect()
    }

    /// Takes what the node says of itself on a new connection, before its first vote. `now` must be read
    /// *after* the answer came. Returns the votes to take back, if there are any.
    pub fn handle_connection(&mut self, now: Timestamp, sighting: &Sighting) -> Option<Withdrawal> {
        let change = match self.last {
            _ if self.distrusted => Change::Server,
            None => {
                self.eligibility = self.at_first_sight(now, sighting);
                self.remember(now, sighting);
                return None;
            }
            Some(last) => last.compare(now, sighting),
        };
        // A connection does not outlive its server's process. So the votes of the last connection were
        // given by the process that was seen on it.
        self.apply(now, sighting, change, change != Change::Restart)
    }

    /// Takes what the node says of itself while a connection lasts, about once a second. `now` must be read
    /// *after* the answer came. Returns the votes to take back, if there are any.
    pub fn handle_sighting(&mut self, now: Timestamp, sighting: &Sighting) -> Option<Withdrawal> {
        let Some(last) = self.last.filter(|_| !self.distrusted) else {
            return self.handle_connection(now, sighting);
        };
        let change = last.compare(now, sighting);
        self.apply(now, sighting, change, true)
    }

    /// Records that the node was seen in a role in which it may drop our keys without a restart, such as a
    /// replica. Its quarantine starts when it is a master again. Returns the votes to take back, if there
    /// are any.
    pub(crate) fn handle_demotion(&mut self, now: Timestamp) -> Option<Withdrawal> {
        let was_known = core::mem::replace(&mut self.distrusted, true);
        if was_known || matches!(self.memory, Memory::Trusted | Memory::Lossless) {
            return None;
        }
        self.eligibility = self.after_quarantine(now);
        self.last.map(|last| self.withdrawal(last))
    }

    /// Returns what the node's votes are worth, in replies that come now.
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
        self.remember(now, sighting);
        let must_wait = match (self.memory, change) {
            (Memory::Trusted, _) | (_, Change::None) => false,
            (Memory::Lossless, change) => change == Change::Clock,
            (Memory::Durable, change) => !matches!(change, Change::Restart | Change::History),
            (Memory::Volatile, _) => true,
        };
        if !must_wait {
            return None;
        }
        self.eligibility = self.after_quarantine(now);
        last.filter(|_| withdraws).map(|last| self.withdrawal(last))
    }

    fn remember(&mut self, now: Timestamp, sighting: &Sighting) {
        self.distrusted = false;
        self.last = Some(Seen {
            sighting: Sighting {
                // The age counts at first sight alone.
                history_age: None,
                ..*sighting
            },
            by: now,
        });
    }

    fn withdrawal(&self, last: Seen) -> Withdrawal {
        Withdrawal {
            since: last.sighting.asked_at,
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
        let by_history = match sighting.replication.map(|replication| replication.origin) {
            None | Some(Origin::Withheld) => untold(),
            Some(Origin::Own) => now,
            Some(Origin::Continues(_)) => {
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

/// The changes on a node since it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// It has restarted.
    Restart,
    /// The same server, with a history that continues another: it was promoted.
    History,
    /// The same server, whose clock has stepped, by which it also counts the life of keys.
    Clock,
    /// Another server that was up already, such as a replica that was promoted. It may lack our keys,
    /// whatever its uptime.
    Server,
}

impl Seen {
    fn compare(&self, now: Timestamp, sighting: &Sighting) -> Change {
        let before = &self.sighting;
        // Rounding to seconds may add one, and clocks may differ in rate, by up to a hundredth as
        // everywhere. Counted from the question: the answer may have been given right then.
        let passed = now.saturating_duration_since(before.asked_at);
        let passed_at_most = passed
            .saturating_add(passed / 100)
            .saturating_add(Duration::from_secs(1));
        let is_same = before.server().is_same(&sighting.server());
        if is_same == Some(false) || self.has_restarted(sighting) {
            return match sighting.uptime {
                Some(uptime) if uptime <= passed_at_most => Change::Restart,
                _ => Change::Server,
            };
        }
        if let (Some(earlier), Some(later)) = (before.replication, sighting.replication)
            && earlier.id != later.id
            && later.origin != Origin::Own
        {
            return Change::History;
        }
        match (before.uptime, sighting.uptime) {
            (Some(earlier), Some(later)) if later.saturating_sub(earlier) > passed_at_most => {
                Change::Clock
            }
            _ => Change::None,
        }
    }

    /// Returns whether the uptime shows a restart. It is only looked at where no run id shows the process.
    fn has_restarted(&self, sighting: &Sighting) -> bool {
        if self.sighting.run_id.is_some() && sighting.run_id.is_some() {
            return false;
        }
        let (Some(earlier), Some(later)) = (self.sighting.uptime, sighting.uptime) else {
            return false;
        };
        let passed = sighting.asked_at.saturating_duration_since(self.by);
        let passed_at_least = passed.saturating_sub(passed / 100);
        later.saturating_add(Duration::from_secs(1)) < earlier.saturating_add(passed_at_least)
    }
}

#[cfg(test)]
mod tests;
