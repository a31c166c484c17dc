use super::*;
use alloc::vec::Vec;

use crate::{Drift, ReplicationId, RunId, Ttl};

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
        origin: Origin::Own,
    }
}

/// A history that continues another, as after a promotion.
const fn promoted(letter: u8) -> Replication {
    Replication {
        id: id(letter),
        origin: Origin::Continues(id(b'0')),
    }
}

/// A sighting at this second, answered at once.
fn seen(second: u64, run_id: RunId, uptime: u64) -> Sighting {
    Sighting {
        asked_at: at(second),
        run_id: Some(run_id),
        uptime: Some(secs(uptime)),
        replication: Some(own(b'1')),
        history_age: None,
    }
}

/// The same server after a promotion.
fn promoted_to(letter: u8, sighting: Sighting) -> Sighting {
    let replication = Some(promoted(letter));
    Sighting {
        replication,
        ..sighting
    }
}

/// The votes of a node from this second on are in doubt, and it votes again from that second on.
fn withdrawn(since: u64, until: u64) -> Withdrawal {
    Withdrawal {
        since: at(since),
        eligibility: Eligibility::since(at(until)),
    }
}

/// A node with its votes' worth after each sighting.
struct Watched(Voter);

impl Watched {
    fn new() -> Self {
        Self(Voter::new(quarantine()))
    }

    /// A node that has been up for long.
    fn old() -> Self {
        let mut node = Self::new();
        node.connect(0, seen(0, A, 500));
        node
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
fn a_reconnection_changes_nothing() {
    let mut node = Watched::new();
    let since = node.connect(0, seen(0, A, 3));
    assert_eq!(node.connect(2, seen(2, A, 5)), since);
    assert_eq!(node.connect(2, seen(2, A, 6)), since, "rounding");
}

#[test]
fn a_clock_that_steps_starts_it_anew() {
    let mut node = Watched::old();
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
fn a_replica_that_is_promoted_waits_from_then_on() {
    let mut node = Watched::new();
    assert_eq!(node.0.handle_demotion(at(0)), None, "it had no vote yet");
    assert_eq!(node.connect(0, seen(0, A, 500)), at(10));
    assert_eq!(node.connect(1, seen(1, A, 501)), at(10));
    assert_eq!(node.0.handle_demotion(at(5)), Some(withdrawn(1, 15)));
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
    let restarted = promoted_to(b'2', seen(200, B, 126));
    assert!(!node.0.needs_history_age(promoted(b'2')));
    assert_eq!(node.connect(200, restarted), at(110), "its history changes");
}

#[test]
fn a_node_whose_failovers_lose_nothing_waits_for_nothing_but_a_step_of_its_clock() {
    let mut node = Watched(Voter::lossless(quarantine()));
    let fresh = promoted_to(b'1', seen(0, A, 0));
    assert_eq!(node.connect(0, fresh), Timestamp::ZERO, "at first sight");
    let later = promoted_to(b'2', seen(1, A, 1));
    assert_eq!(node.probe(1, later), None, "promoted");
    assert_eq!(node.probe(2, seen(2, B, 900)), None, "another server");
    assert_eq!(node.connect(3, seen(3, A, 0)), Timestamp::ZERO, "restarted");
    assert_eq!(node.0.handle_demotion(at(4)), None);
    let since = node.connect(5, seen(5, A, 2));
    assert_eq!(since, Timestamp::ZERO, "a replica before");
    let jumped = node.probe(6, seen(6, A, 900)).expect("it has jumped");
    assert_eq!(jumped.eligibility, Eligibility::since(at(16)));
}

#[test]
fn a_promotion_at_first_sight_delays_votes_unless_its_age_is_known() {
    let first_sight = |uptime, history_age| {
        let mut node = Watched::new();
        assert!(node.0.needs_history_age(promoted(b'2')));
        assert!(!node.0.needs_history_age(own(b'2')));
        let sighting = promoted_to(b'2', seen(0, A, uptime));
        node.connect(
            0,
            Sighting {
                history_age,
                ..sighting
            },
        )
    };
    assert_eq!(first_sight(500, None), at(10), "however long it is up");
    assert_eq!(first_sight(500, Some(secs(3))), at(7));
    assert_eq!(first_sight(500, Some(secs(LENGTH))), Timestamp::ZERO);
    assert_eq!(first_sight(3, Some(secs(LENGTH))), at(8), "the uptime too");
}

/// The fields of `INFO` that a server may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    RunId,
    Uptime,
    Replication,
    SecondHistory,
}

fn without(fields: &[Field], sighting: Sighting) -> Sighting {
    let says = |field| !fields.contains(&field);
    let replication = sighting.replication.filter(|_| says(Field::Replication));
    Sighting {
        run_id: sighting.run_id.filter(|_| says(Field::RunId)),
        uptime: sighting.uptime.filter(|_| says(Field::Uptime)),
        replication: replication.map(|it| match says(Field::SecondHistory) {
            true => it,
            false => Replication {
                origin: Origin::Withheld,
                ..it
            },
        }),
        ..sighting
    }
}

#[test]
fn a_node_whose_start_or_promotion_is_unknown_waits_unless_that_is_allowed() {
    for field in [Field::Uptime, Field::Replication, Field::SecondHistory] {
        let sighting = without(&[field], seen(0, A, 500));
        assert_eq!(Watched::new().connect(0, sighting), at(10), "{field:?}");
        let mut node = Watched(Voter::new(quarantine()).allowing_unvetted());
        assert_eq!(node.connect(0, sighting), Timestamp::ZERO, "{field:?}");
    }
    // The uptime counts all the same.
    let mut young = Watched(Voter::new(quarantine()).allowing_unvetted());
    let sighting = without(&[Field::RunId, Field::SecondHistory], seen(0, A, 3));
    assert_eq!(young.connect(0, sighting), at(8));
}

#[test]
fn each_missing_field_leaves_the_checks_unmet_that_need_it() {
    use Check::{Promotion, Role, Server, Start};
    use Field::{Replication, RunId, SecondHistory, Uptime};
    let volatile = || Voter::new(quarantine());
    let unmet = |voter: Voter, fields: &[Field], role| {
        let sighting = without(fields, seen(0, A, 500));
        voter.unmet(role, &sighting).iter().collect::<Vec<_>>()
    };
    let cases: [(&[Field], &[Check], &[Check]); 8] = [
        (&[], &[], &[]),
        (&[RunId], &[], &[]),
        // The run id shows each restart, so the node only waits.
        (&[Uptime], &[], &[Start]),
        (&[RunId, Uptime], &[Start], &[Start]),
        (&[SecondHistory], &[Promotion], &[Promotion]),
        (&[RunId, SecondHistory], &[Promotion], &[Promotion]),
        (&[Replication], &[Promotion], &[Promotion]),
        (
            &[RunId, Uptime, Replication],
            &[Server, Start, Promotion],
            &[Server, Start, Promotion],
        ),
    ];
    for (fields, strict, lenient) in cases {
        let found = unmet(volatile(), fields, ServerRole::Master);
        assert_eq!(found, strict, "{fields:?}");
        let unvetted = volatile().allowing_unvetted();
        let found = unmet(unvetted, fields, ServerRole::ClusterMaster);
        assert_eq!(found, lenient, "{fields:?}");
    }
    let all = [RunId, Uptime, Replication];
    for voter in [
        Voter::durable(quarantine()),
        Voter::trusted(quarantine()).allowing_unvetted(),
    ] {
        let found = unmet(voter.clone(), &all, ServerRole::Withheld);
        assert_eq!(found, [Server, Role]);
        assert_eq!(unmet(voter, &[RunId], ServerRole::Replica), []);
    }
}

#[test]
fn a_history_of_zeros_does_not_tell_servers_apart() {
    let zeros = Replication {
        id: ReplicationId::NONE,
        origin: Origin::Own,
    };
    let sighting = Sighting {
        replication: Some(zeros),
        ..seen(0, A, 500)
    };
    let unmet = |sighting| {
        let voter = Voter::new(quarantine());
        voter.unmet(ServerRole::Master, &sighting)
    };
    assert_eq!(unmet(sighting), Checks::NONE, "its run id tells");
    let unmet = unmet(without(&[Field::RunId], sighting));
    assert_eq!(unmet.iter().collect::<Vec<_>>(), [Check::Server]);
}

#[test]
fn without_a_run_id_the_uptime_shows_a_restart() {
    let fields: [&[Field]; 2] = [&[Field::RunId], &[Field::RunId, Field::Replication]];
    for fields in fields {
        let seen = |second, uptime| without(fields, seen(second, A, uptime));
        for (before, after, is_restart) in [(500, 3, true), (3, 2, true), (3, 13, false)] {
            let mut node = Watched(Voter::new(quarantine()).allowing_unvetted());
            let since = node.connect(0, seen(0, before));
            // Rounding.
            assert_eq!(node.connect(5, seen(5, before + 4)), since);
            let expected = if is_restart { at(20) } else { since };
            let since = node.connect(10, seen(10, after));
            assert_eq!(since, expected, "{before} {after}");
        }
    }
    // The control: a run id shows that the process is the same, and the clock went back.
    let mut node = Watched::new();
    let since = node.connect(0, seen(0, A, 500));
    assert_eq!(node.connect(10, seen(10, A, 3)), since);
}
