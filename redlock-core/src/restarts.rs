use core::{fmt, time::Duration};

use crate::{Quarantine, Timestamp};

/// What a server calls itself from its start to its end: Redis' `run_id`, 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId([u8; Self::LEN]);

impl RunId {
    /// The number of digits.
    pub const LEN: usize = 40;

    /// Creates a run id from the digits as the server says them.
    #[must_use]
    pub const fn new(digits: [u8; Self::LEN]) -> Self {
        Self(digits)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The restarts of one node, as far as its client has seen them: from when on it may vote.
///
/// A server says for how long it is up, but by its wall clock, and not whether it is the one that
/// answered before. What does not fit what was seen earlier starts the quarantine anew, by the
/// client's own clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restarts {
    quarantine: Quarantine,
    /// A restart loses no key.
    durable: bool,
    last: Option<Sighting>,
    /// It was seen in a state from which it may come back without our keys.
    distrusted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    run_id: RunId,
    at: Timestamp,
    uptime: Duration,
    eligible_at: Timestamp,
}

impl Restarts {
    /// Creates the history of a node that was not seen yet.
    #[must_use]
    pub const fn new(quarantine: Quarantine) -> Self {
        Self {
            quarantine,
            durable: false,
            last: None,
            distrusted: false,
        }
    }

    /// Creates the history of a node that forgets nothing when it restarts, because it writes to disk
    /// before it answers. It need not wait then; but it must if another server took its place, or if
    /// its clock has stepped.
    #[must_use]
    pub const fn of_durable_node(quarantine: Quarantine) -> Self {
        Self {
            durable: true,
            ..Self::new(quarantine)
        }
    }

    /// Notes what the node says of itself, and returns from when on it may vote. `now` must be read
    /// *after* the answer came, as for [`Quarantine::eligible_at`]; `uptime` is in whole seconds.
    pub fn handle_sighting(
        &mut self,
        now: Timestamp,
        run_id: RunId,
        uptime: Duration,
    ) -> Timestamp {
        let from_now = now.saturating_add(self.quarantine.length());
        let by_uptime = self.quarantine.eligible_at(now, uptime);
        let eligible_at = match self.last {
            _ if self.distrusted => from_now,
            None if self.durable => now,
            None => by_uptime,
            Some(last) => {
                // Rounding to seconds may add one, and clocks may differ in rate, by up to a hundredth
                // as everywhere.
                let passed = now.saturating_duration_since(last.at);
                let passed_at_most = passed
                    .saturating_add(passed / 100)
                    .saturating_add(Duration::from_secs(1));
                if last.run_id == run_id {
                    let grown = uptime.saturating_sub(last.uptime);
                    if grown > passed_at_most {
                        // A step of the server's clock, by which it also counts the life of keys.
                        from_now
                    } else {
                        last.eligible_at
                    }
                } else if self.durable && uptime <= passed_at_most {
                    // It came up since, with all that it knew before.
                    last.eligible_at
                } else {
                    // Restarted; or another server, such as a replica that was promoted, which may
                    // lack our keys however long it is up, and whoever has seen its predecessor last.
                    // By what it says it cannot be told, so it waits from now on.
                    from_now
                }
            }
        };
        self.distrusted = false;
        self.last = Some(Sighting {
            run_id,
            at: now,
            uptime,
            eligible_at,
        });
        eligible_at
    }

    /// Notes that the node was seen as what may drop our keys without a restart, such as a replica:
    /// when it is a master again, its quarantine starts then.
    pub fn handle_demotion(&mut self) {
        self.distrusted = true;
    }

    /// Returns what the node called itself when it was last seen.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        self.last.map(|last| last.run_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Ttl};

    const A: RunId = RunId::new([b'a'; 40]);
    const B: RunId = RunId::new([b'b'; 40]);
    const LENGTH: u64 = 10;

    fn restarts() -> Restarts {
        let max_ttl = Ttl::new(secs(LENGTH)).unwrap();
        Restarts::new(Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO)))
    }

    const fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(secs(1000 + seconds))
    }

    #[test]
    fn a_node_waits_by_its_uptime() {
        assert_eq!(restarts().handle_sighting(at(0), A, secs(3)), at(8));
        let old = restarts().handle_sighting(at(0), A, secs(500));
        assert!(old <= at(0));
    }

    #[test]
    fn a_reconnection_changes_nothing() {
        let mut restarts = restarts();
        let eligible_at = restarts.handle_sighting(at(0), A, secs(3));
        assert_eq!(restarts.handle_sighting(at(2), A, secs(5)), eligible_at);
        assert_eq!(
            restarts.handle_sighting(at(2), A, secs(6)),
            eligible_at,
            "rounding"
        );
        assert_eq!(restarts.run_id(), Some(A));
    }

    #[test]
    fn a_restart_counts_from_when_it_is_seen() {
        let mut restarts = restarts();
        restarts.handle_sighting(at(0), A, secs(500));
        assert_eq!(restarts.handle_sighting(at(64), B, secs(3)), at(74));
    }

    #[test]
    fn a_server_that_was_up_already_is_another() {
        let mut restarts = restarts();
        restarts.handle_sighting(at(0), A, secs(500));
        // Up for as long as it likes: it may be a replica that was promoted.
        assert_eq!(restarts.handle_sighting(at(3601), B, secs(3500)), at(3611));
    }

    #[test]
    fn a_clock_that_steps_starts_it_anew() {
        let mut restarts = restarts();
        restarts.handle_sighting(at(0), A, secs(500));
        assert_eq!(restarts.handle_sighting(at(5), A, secs(4000)), at(15));
        // Clocks that only differ in rate are no reason.
        let mut drifting = self::restarts();
        let voted = drifting.handle_sighting(at(0), A, secs(500));
        let a_day = 24 * 3600;
        let seen = drifting.handle_sighting(at(a_day), A, secs(500 + a_day + 60));
        assert_eq!(seen, voted);
        // And that is remembered.
        assert_eq!(restarts.handle_sighting(at(6), A, secs(4001)), at(15));
    }

    #[test]
    fn a_replica_that_is_promoted_waits_from_then_on() {
        let mut restarts = restarts();
        restarts.handle_demotion();
        assert_eq!(restarts.handle_sighting(at(0), A, secs(500)), at(10));
        assert_eq!(restarts.handle_sighting(at(1), A, secs(501)), at(10));
    }

    #[test]
    fn a_durable_node_waits_for_nothing_but_a_change_of_server() {
        let mut node = Restarts::of_durable_node(restarts().quarantine);
        assert_eq!(node.handle_sighting(at(0), A, secs(3)), at(0));
        let restarted = node.handle_sighting(at(64), B, secs(3));
        assert!(restarted <= at(64));
        let promoted = node.handle_sighting(at(70), A, secs(3500));
        assert_eq!(promoted, at(80));
        // A restart does not end that.
        assert_eq!(node.handle_sighting(at(75), B, secs(1)), at(80));
        node.handle_demotion();
        assert_eq!(node.handle_sighting(at(100), B, secs(26)), at(110));
    }
}
