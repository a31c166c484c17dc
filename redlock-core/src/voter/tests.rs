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
    // Whatever its uptime, it may be a replica that was promoted.
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
fn a_node_whose_failovers_lose_nothing_waits_for_nothing_but_a_step_of_its_clock() {
    let mut node = Watched(Voter::lossless(quarantine()));
    let fresh = Sighting {
        replication: Some(promoted(b'1')),
        ..seen(0, A, 0)
    };
    assert_eq!(node.connect(0, fresh), Timestamp::ZERO, "at first sight");
    let later = Sighting {
        replication: Some(promoted(b'2')),
        ..seen(1, A, 1)
    };
    assert_eq!(node.probe(1, later), None, "promoted");
    assert_eq!(node.probe(2, seen(2, B, 900)), None, "another server");
    assert_eq!(node.connect(3, seen(3, A, 0)), Timestamp::ZERO, "restarted");
    assert_eq!(node.0.handle_demotion(at(4)), None);
    assert_eq!(
        node.connect(5, seen(5, A, 2)),
        Timestamp::ZERO,
        "a replica before"
    );
    let jumped = node
        .probe(6, seen(6, A, 900))
        .expect("its clock has jumped");
    assert_eq!(jumped.eligibility, Eligibility::since(at(16)));
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
fn a_promotion_at_first_sight_delays_votes_unless_its_age_is_known() {
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
fn a_promotion_under_a_connection_withdraws_the_votes_since_the_last_sighting() {
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
fn a_node_that_does_not_say_what_it_is_waits_unless_that_is_allowed() {
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
