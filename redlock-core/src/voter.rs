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
    /// Votes that were answered then or later are withdrawn: then the node was last asked what it is,
    /// and was still the one that it had been.
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

    /// Returns whether a node that does not say what it is may vote.
    pub(crate) const fn allows_unvetted(&self) -> bool {
        self.allows_unvetted
    }

    /// Returns whether it is of use that the node tells its uptime and its history.
    pub(crate) fn needs_vetting(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, ReplicationId, Ttl};

    const A: RunId = RunId::new([b'a'; 40]);
    const B: RunId = RunId::new([b'b'; 40]);
    const LENGTH: u64 = 10;

    fn quarantine() -> Quarantine {
        let max_ttl = Ttl::new(secs(LENGTH)).unwrap();
        Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO))
    }

    const fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(secs(1000 + seconds))
    }

    const fn id(letter: u8) -> ReplicationId {
        ReplicationId::new([letter; 40])
    }

    /// A history that the server has had from its start.
    const fn own(letter: u8) -> Replication {
        Replication {
            id: id(letter),
            continues: None,
        }
    }

    /// A history that continues another, as after a promotion.
    const fn promoted(letter: u8) -> Replication {
        Replication {
            id: id(letter),
            continues: Some(id(b'0')),
        }
    }

    /// A sighting at this second, answered at once.
    fn seen(second: u64, run_id: RunId, uptime: u64) -> Sighting {
        Sighting {
            asked_at: at(second),
            run_id,
            uptime: Some(secs(uptime)),
            replication: Some(own(b'1')),
            history_age: None,
        }
    }

    /// A node with its votes' worth after each sighting.
    struct Watched(Voter);

    impl Watched {
        fn new() -> Self {
            Self(Voter::new(quarantine()))
        }

        fn connect(&mut self, second: u64, sighting: Sighting) -> Timestamp {
            self.0.handle_connection(at(second), &sighting);
            self.0.eligibility().starts_at()
        }

        fn probe(&mut self, second: u64, sighting: Sighting) -> Option<Withdrawal> {
            self.0.handle_sighting(at(second), &sighting)
        }
    }

    #[test]
    fn a_node_waits_by_its_uptime() {
        assert_eq!(Watched::new().connect(0, seen(0, A, 3)), at(8));
        assert_eq!(Watched::new().connect(0, seen(0, A, 500)), Timestamp::ZERO);
    }

    #[test]
    fn a_reconnection_changes_nothing() {
        let mut node = Watched::new();
        let since = node.connect(0, seen(0, A, 3));
        assert_eq!(node.connect(2, seen(2, A, 5)), since);
        assert_eq!(node.connect(2, seen(2, A, 6)), since, "rounding");
    }

    #[test]
    fn a_restart_counts_from_when_it_is_seen() {
        let mut node = Watched::new();
        node.connect(0, seen(0, A, 500));
        let restarted = seen(64, B, 3);
        assert_eq!(node.0.handle_connection(at(64), &restarted), None);
        assert_eq!(node.0.eligibility(), Eligibility::since(at(74)));
    }

    #[test]
    fn a_server_that_was_up_already_is_another() {
        let mut node = Watched::new();
        node.connect(0, seen(0, A, 500));
        // Up for as long as it likes: it may be a replica that was promoted.
        let other = seen(3601, B, 3700);
        let withdrawal = node.0.handle_connection(at(3601), &other);
        assert_eq!(
            withdrawal,
            Some(Withdrawal {
                since: at(0),
                eligibility: Eligibility::since(at(3611)),
            })
        );
    }

    #[test]
    fn a_clock_that_steps_starts_it_anew() {
        let mut node = Watched::new();
        node.connect(0, seen(0, A, 500));
        assert_eq!(node.connect(5, seen(5, A, 4000)), at(15));
        // And that is remembered.
        assert_eq!(node.connect(6, seen(6, A, 4001)), at(15));
        // Clocks that only differ in rate are no reason.
        let mut drifting = Watched::new();
        let since = drifting.connect(0, seen(0, A, 500));
        let a_day = 24 * 3600;
        let later = seen(a_day, A, 500 + a_day + 60);
        assert_eq!(drifting.connect(a_day, later), since);
    }

    #[test]
    fn an_answer_that_was_read_late_is_no_step_of_a_clock() {
        let mut node = Watched::new();
        // Asked and answered at once, read four seconds later.
        let since = node.connect(4, seen(0, A, 500));
        assert_eq!(node.probe(5, seen(5, A, 505)), None);
        assert_eq!(node.0.eligibility(), Eligibility::since(since));
    }

    #[test]
    fn a_replica_that_is_promoted_waits_from_then_on() {
        let mut node = Watched::new();
        assert_eq!(node.0.handle_demotion(at(0)), None, "it had no vote yet");
        assert_eq!(node.connect(0, seen(0, A, 500)), at(10));
        assert_eq!(node.connect(1, seen(1, A, 501)), at(10));
        let since = at(1);
        let eligibility = Eligibility::since(at(15));
        let withdrawal = Withdrawal { since, eligibility };
        assert_eq!(node.0.handle_demotion(at(5)), Some(withdrawal));
        assert_eq!(node.0.handle_demotion(at(6)), None, "once");
        assert_eq!(node.connect(7, seen(7, A, 507)), at(17));
    }

    #[test]
    fn a_durable_node_waits_for_nothing_but_a_change_of_server() {
        let mut node = Watched(Voter::durable(quarantine()));
        assert_eq!(node.connect(0, seen(0, A, 3)), Timestamp::ZERO);
        assert_eq!(node.connect(64, seen(64, B, 3)), Timestamp::ZERO, "restart");
        assert_eq!(node.connect(70, seen(70, A, 3500)), at(80), "promoted");
        // A restart does not end that.
        assert_eq!(node.connect(75, seen(75, B, 1)), at(80));
        node.0.handle_demotion(at(99));
        assert_eq!(node.connect(100, seen(100, B, 26)), at(110));
        let replication = Some(promoted(b'2'));
        let restarted = Sighting {
            replication,
            ..seen(200, B, 126)
        };
        assert!(!node.0.needs_history_age(promoted(b'2')) && !node.0.needs_vetting());
        assert_eq!(node.connect(200, restarted), at(110), "its history changes");
    }

    #[test]
    fn a_trusted_node_always_votes() {
        let mut node = Watched(Voter::trusted(quarantine()));
        assert_eq!(node.connect(0, seen(0, A, 0)), Timestamp::ZERO);
        assert_eq!(node.probe(1, seen(1, B, 3500)), None);
        assert_eq!(node.0.handle_demotion(at(2)), None);
        assert_eq!(node.connect(3, seen(3, A, 0)), Timestamp::ZERO);
        assert!(!node.0.needs_history_age(promoted(b'2')) && !node.0.needs_vetting());
    }

    #[test]
    fn a_promotion_at_first_sight_is_waited_out_unless_its_age_is_known() {
        let first_sight = |uptime, history_age| {
            let mut node = Watched::new();
            assert!(node.0.needs_history_age(promoted(b'2')));
            assert!(!node.0.needs_history_age(own(b'2')));
            let sighting = Sighting {
                replication: Some(promoted(b'2')),
                history_age,
                ..seen(0, A, uptime)
            };
            node.connect(0, sighting)
        };
        assert_eq!(first_sight(500, None), at(10), "however long it is up");
        assert_eq!(first_sight(500, Some(secs(3))), at(7));
        assert_eq!(first_sight(500, Some(secs(LENGTH))), Timestamp::ZERO);
        assert_eq!(first_sight(3, Some(secs(LENGTH))), at(8), "the uptime too");
    }

    #[test]
    fn a_promotion_under_a_connection_withdraws_what_was_voted_since_the_last_look() {
        let mut node = Watched::new();
        node.connect(0, seen(0, A, 500));
        assert_eq!(node.probe(1, seen(1, A, 501)), None);
        let after = Sighting {
            replication: Some(promoted(b'2')),
            // However old the history is: it is not the one that was there.
            history_age: Some(secs(3600)),
            ..seen(2, A, 502)
        };
        let withdrawal = Withdrawal {
            since: at(1),
            eligibility: Eligibility::since(at(13)),
        };
        assert_eq!(node.probe(3, after), Some(withdrawal));
        assert_eq!(
            node.probe(
                4,
                Sighting {
                    asked_at: at(4),
                    ..after
                }
            ),
            None,
            "once"
        );
        // The history is begun anew when the last replica is long gone.
        let alone = Sighting {
            replication: Some(own(b'3')),
            ..seen(5, A, 503)
        };
        assert_eq!(node.probe(5, alone), None);
        assert_eq!(node.0.eligibility(), Eligibility::since(at(13)));
    }

    #[test]
    fn another_server_under_a_connection_withdraws_however_young_it_is() {
        for uptime in [0, 1, 3500] {
            let mut node = Watched::new();
            node.connect(0, seen(0, A, 500));
            let withdrawal = node.probe(1, seen(1, B, uptime)).expect("another server");
            assert_eq!(withdrawal.since, at(0));
            assert_eq!(withdrawal.eligibility, Eligibility::since(at(11)));
        }
    }

    #[test]
    fn what_is_not_told_is_waited_out_unless_that_is_allowed() {
        let silent = [
            Sighting {
                uptime: None,
                ..seen(0, A, 500)
            },
            Sighting {
                replication: None,
                ..seen(0, A, 500)
            },
        ];
        for sighting in silent {
            let mut node = Watched::new();
            assert!(node.0.needs_vetting());
            assert_eq!(node.connect(0, sighting), at(10), "{sighting:?}");
            let mut node = Watched(Voter::new(quarantine()).allowing_unvetted());
            assert!(!node.0.needs_vetting());
            assert_eq!(node.connect(0, sighting), Timestamp::ZERO, "{sighting:?}");
        }
    }
}
