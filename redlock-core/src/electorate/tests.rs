mod owners;

use super::*;
use crate::{
    Check, Checks, Drift, Origin, Quarantine, Replication, ReplicationId, RunId, Ttl, said::node,
};
use core::time::Duration;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + seconds))
}

/// A quarantine of 10 s.
fn quarantine() -> Quarantine {
    let max_ttl = Ttl::new(Duration::from_secs(10)).unwrap();
    Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO))
}

fn voter() -> Voter {
    Voter::new(quarantine())
}

/// A server that was not promoted, asked when it was up for `uptime` seconds.
fn server(role: ServerRole, letter: u8, uptime: u64) -> Identity {
    Identity::Server {
        role,
        sighting: Sighting {
            asked_at: at(0),
            run_id: Some(RunId::new([letter; RunId::LEN])),
            uptime: Some(Duration::from_secs(uptime)),
            replication: Some(Replication {
                id: ReplicationId::new([letter; ReplicationId::LEN]),
                origin: Origin::Own,
            }),
            history_age: None,
        },
    }
}

fn master(letter: u8) -> Identity {
    server(ServerRole::Master, letter, 500)
}

const ALWAYS: Result<Eligibility, Exclusion> = Ok(Eligibility::ALWAYS);

fn connect(
    electorate: &mut Electorate,
    second: u64,
    index: usize,
    identity: &Identity,
) -> Admission {
    electorate.handle_connection(at(second), node(index), identity)
}

fn inspect(
    electorate: &mut Electorate,
    second: u64,
    index: usize,
    identity: &Identity,
) -> Admission {
    electorate.handle_inspection(at(second), node(index), identity)
}

/// What the first connection of the first node is worth to a client with these rules.
fn admission(voter: Voter, identity: &Identity) -> Admission {
    connect(&mut Electorate::new(voter), 0, 0, identity)
}

/// An electorate whose node 0 is a master that has been up for long.
fn with_first(voter: Voter) -> Electorate {
    let mut electorate = Electorate::new(voter);
    let admission = connect(&mut electorate, 0, 0, &master(b'x'));
    assert_eq!(admission.outcome, ALWAYS);
    electorate
}

#[test]
fn a_node_that_does_not_say_what_it_is_has_no_vote_unless_the_client_allows_that() {
    let strict = admission(voter(), &Identity::Withheld);
    assert_eq!(strict.outcome, Err(Exclusion::IdentityWithheld));
    let lenient = admission(voter().allowing_unvetted(), &Identity::Withheld);
    assert_eq!(lenient.outcome, ALWAYS);
}

/// What a server says whose `INFO` is changed like this.
fn saying(role: ServerRole, letter: u8, change: impl Fn(&mut Sighting)) -> Identity {
    let mut identity = server(role, letter, 500);
    if let Identity::Server { sighting, .. } = &mut identity {
        change(sighting);
    }
    identity
}

/// A server whose history continues another, as after a promotion.
fn promoted(role: ServerRole, letter: u8, history: u8) -> Identity {
    let id = ReplicationId::new([history; ReplicationId::LEN]);
    let origin = Origin::Continues(id);
    saying(role, letter, |it| {
        it.replication = Some(Replication { id, origin });
    })
}

fn without_run_id(role: ServerRole, letter: u8) -> Identity {
    saying(role, letter, |it| it.run_id = None)
}

#[test]
fn a_server_without_a_role_has_no_vote_unless_the_client_allows_that() {
    let unmet: Checks = [Check::Role].into_iter().collect();
    let identity = server(ServerRole::Withheld, b'x', 500);
    for voter in [voter(), Voter::durable(quarantine())] {
        let refused = admission(voter, &identity);
        assert_eq!(refused.outcome, Err(Exclusion::Unvetted { unmet }));
    }
    let allowed = admission(voter().allowing_unvetted(), &identity);
    assert_eq!((allowed.outcome, allowed.unmet), (ALWAYS, unmet));
}

#[test]
fn all_checks_of_a_node_that_does_not_describe_itself_are_unmet() {
    let withheld = admission(voter().allowing_unvetted(), &Identity::Withheld);
    let mut all = Check::ALL.into_iter();
    assert!(all.all(|it| withheld.unmet.contains(it)));
    let inner = admission(voter().allowing_unvetted(), &Identity::InProcess);
    assert_eq!(inner.unmet, Checks::NONE);
}

#[test]
fn servers_without_run_ids_are_told_apart_by_their_histories() {
    let mut electorate = Electorate::new(voter());
    let mut connect =
        |index, identity: &Identity| connect(&mut electorate, 0, index, identity).outcome;
    let [x, y] = [b'x', b'y'].map(|letter| without_run_id(ServerRole::Master, letter));
    assert_eq!(connect(0, &x), ALWAYS);
    assert_eq!(connect(1, &y), ALWAYS);
    let same = Err(Exclusion::SameServer { other: node(0) });
    assert_eq!(connect(2, &x), same);
    // One address of the server leads through a proxy that hides its run id.
    assert_eq!(connect(2, &master(b'x')), same);
    assert_eq!(connect(2, &master(b'z')), ALWAYS);
}

#[test]
fn a_replica_is_known_by_its_next_connection_too() {
    let mut electorate = with_first(voter());
    let replica = server(ServerRole::Replica, b'x', 510);
    let refused = connect(&mut electorate, 10, 0, &replica);
    // It may have been one for a while.
    assert!(refused.withdrawal.is_some());
    let master = connect(&mut electorate, 12, 0, &master(b'x'));
    assert_eq!(master.outcome, Ok(Eligibility::since(at(22))));
}

#[test]
fn the_age_of_a_history_is_of_use_only_for_a_master_that_may_have_been_promoted() {
    let electorate = Electorate::new(voter());
    let [master, replica] =
        [ServerRole::Master, ServerRole::Replica].map(|role| promoted(role, b'x', b'x'));
    assert!(electorate.needs_history_age(&master));
    for identity in [
        replica,
        self::master(b'x'),
        Identity::Withheld,
        Identity::InProcess,
    ] {
        assert!(!electorate.needs_history_age(&identity), "{identity:?}");
    }
    let durable = Electorate::new(Voter::durable(quarantine()));
    assert!(!durable.needs_history_age(&master));
}

#[test]
fn another_server_in_its_place_waits_and_its_last_votes_are_withdrawn() {
    let mut electorate = with_first(voter());
    let inspected = inspect(&mut electorate, 1, 0, &master(b'z'));
    assert_eq!(inspected.outcome, Ok(Eligibility::since(at(11))));
    assert!(inspected.withdrawal.is_some());
}
