//! Nodes whose server an authority names.

use super::*;
use crate::{MemberId, MemberList, Owner};

const SECOND: Duration = Duration::from_secs(1);

/// A ttl of 10 s and a window of 3 s.
fn rule() -> OwnerRule {
    let max_ttl = Ttl::new(10 * SECOND).unwrap();
    OwnerRule::new(max_ttl, Drift::new(0, Duration::ZERO), 3 * SECOND)
}

fn slot(slot: u16, may_share_server: bool) -> NodeKind {
    NodeKind::ClusterSlot {
        rule: rule(),
        slot,
        may_share_server,
    }
}

fn tenure(owner: &str, epoch: u64) -> Tenure {
    let owner = Owner::new(owner);
    Tenure { owner, epoch }
}

/// An electorate whose nodes 0 and 1 are of this kind.
fn of_kind(voter: Voter, kind: NodeKind) -> Electorate {
    let mut electorate = Electorate::new(voter);
    for index in 0..2 {
        electorate.set_kind(node(index), kind);
    }
    electorate
}

/// The only member of the authority names the owner of node 0, and has known it for so long. Returns
/// whether it is another one.
fn name(electorate: &mut Electorate, second: u64, tenure: &Tenure, age: u64) -> bool {
    name_of(electorate, node(0), second, tenure, age)
}

fn name_of(
    electorate: &mut Electorate,
    node: NodeId,
    second: u64,
    tenure: &Tenure,
    age: u64,
) -> bool {
    let report = MemberReport {
        asked_at: at(second),
        member: MemberId::new([b's'; MemberId::LEN]),
        members: MemberList::default(),
        tenure: Some(tenure.clone()),
        age: Duration::from_secs(age),
    };
    let has_changed = electorate.handle_report(at(second), node, report);
    electorate.handle_roll_call(at(second), node, at(second)) || has_changed
}

/// Node 0 is connected to as the owner of this tenure.
fn connect_owner(
    electorate: &mut Electorate,
    second: u64,
    tenure: &Tenure,
    identity: &Identity,
) -> Admission {
    electorate.handle_owner_connection(at(second), node(0), tenure, identity)
}

/// An electorate whose node 0 is a group with an owner that votes, and was connected to.
fn with_owner(voter: Voter) -> (Electorate, Tenure) {
    let mut electorate = of_kind(voter, NodeKind::SentinelGroup(rule()));
    let first = tenure("m", 1);
    assert!(name(&mut electorate, 0, &first, 100));
    let admission = connect_owner(&mut electorate, 0, &first, &master(b'm'));
    assert!(admission.outcome.unwrap().covers(at(0)));
    (electorate, first)
}

#[test]
fn a_group_has_no_vote_before_its_owner_is_named_and_connected_to() {
    let mut electorate = of_kind(voter(), NodeKind::SentinelGroup(rule()));
    assert_eq!(electorate.eligibility(node(0)), Eligibility::NEVER);
    assert_eq!(electorate.tenure(node(0)), None);
    // Connected to by an address that no authority named.
    let unnamed = connect(&mut electorate, 0, 0, &master(b'm'));
    assert_eq!(unnamed.outcome, Ok(Eligibility::NEVER));
    let first = tenure("m", 1);
    assert!(name(&mut electorate, 0, &first, 100));
    assert_eq!(electorate.tenure(node(0)), Some(&first));
    assert_eq!(electorate.eligibility(node(0)), Eligibility::NEVER);
}

#[test]
fn a_marker_counts_for_the_slot_it_was_read_on_and_for_no_sentinel_group() {
    let first = tenure("m", 1);
    let in_cluster = server(ServerRole::ClusterMaster, b'm', 500);
    for (kind, identity, believes) in [
        (slot(0, false), &in_cluster, true),
        (NodeKind::SentinelGroup(rule()), &master(b'm'), false),
    ] {
        let mut electorate = of_kind(voter(), kind);
        name(&mut electorate, 0, &first, 0);
        let admission = connect_owner(&mut electorate, 0, &first, identity);
        assert_eq!(admission.outcome.unwrap().starts_at(), at(13));
        electorate.handle_marker(at(0), node(1), &first, 20 * SECOND);
        assert_eq!(electorate.eligibility(node(0)).starts_at(), at(13));
        electorate.handle_marker(at(0), node(0), &first, 20 * SECOND);
        assert_eq!(electorate.eligibility(node(0)).covers(at(0)), believes);
    }
}

#[test]
fn another_server_in_one_tenure_waits_and_the_votes_before_are_withdrawn() {
    let (mut electorate, first) = with_owner(voter());
    name(&mut electorate, 1, &first, 100);
    let admission = connect_owner(&mut electorate, 1, &first, &master(b'x'));
    let eligibility = admission.outcome.unwrap();
    assert_eq!(eligibility.starts_at(), at(1 + 10));
    assert_eq!(eligibility.ends_at(), at(1 + 3));
    let withdrawal = admission.withdrawal.expect("it has voted");
    assert_eq!(withdrawal.since, at(0));
    assert_eq!(withdrawal.eligibility, eligibility, "with the window");
}

#[test]
fn two_slots_of_one_server_vote_only_if_both_may_share_it_or_they_came_together_later() {
    let same = Err(Exclusion::SameServer { other: node(0) });
    let shared = Err(Exclusion::SharedServer { other: node(0) });
    // A server that does not say what it is is known by the cluster's nodes.
    for identity in [
        server(ServerRole::ClusterMaster, b'm', 500),
        Identity::Withheld,
    ] {
        // The second voter is connected to as a slot of these servers, one after the other.
        let second = |kinds: [NodeKind; 2], owners: &[&str]| {
            let mut electorate = Electorate::new(voter().allowing_unvetted());
            for (index, kind) in kinds.into_iter().enumerate() {
                electorate.set_kind(node(index), kind);
            }
            let mut connect = |index, epoch, owner| {
                let tenure = tenure(owner, epoch);
                name_of(&mut electorate, node(index), epoch, &tenure, 100);
                let admission =
                    electorate.handle_owner_connection(at(epoch), node(index), &tenure, &identity);
                admission.outcome.map(|_| ())
            };
            assert_eq!(connect(0, 1, "m"), Ok(()));
            let outcomes = owners
                .iter()
                .zip(1..)
                .map(|(owner, epoch)| connect(1, epoch, owner));
            outcomes.last().unwrap()
        };
        let [open, closed] = [slot(2, true), slot(2, false)];
        assert_eq!(second([slot(1, true), open], &["m"]), Ok(()));
        assert_eq!(second([slot(1, false), open], &["m"]), shared);
        assert_eq!(second([slot(1, true), closed], &["m"]), shared);
        assert_eq!(second([slot(1, false), closed], &["n"]), Ok(()));
        assert_eq!(second([slot(1, false), closed], &["n", "m"]), Ok(()));
        assert_eq!(second([slot(1, false), closed], &["m", "n"]), Ok(()));
        assert_eq!(second([slot(2, true), open], &["m"]), same);
        assert_eq!(second([slot(2, true), open], &["n", "m"]), same);
    }
}

#[test]
fn an_owner_that_was_promoted_again_in_its_tenure_waits_even_if_nodes_are_durable() {
    for voter in [voter(), Voter::durable(quarantine())] {
        let (mut electorate, _) = with_owner(voter);
        let again = promoted(ServerRole::Master, b'm', b'2');
        assert!(electorate.needs_history_age(&again));
        let inspected = inspect(&mut electorate, 1, 0, &again);
        assert!(inspected.withdrawal.is_some());
        assert_eq!(inspected.outcome.unwrap().starts_at(), at(1 + 10));
        // The same on another connection, and for the next tenure, of which nothing is known.
        let second = tenure("r", 2);
        name(&mut electorate, 2, &second, 100);
        let owner = promoted(ServerRole::Master, b'r', b'3');
        let admission = connect_owner(&mut electorate, 2, &second, &owner);
        assert_eq!(admission.outcome.unwrap().starts_at(), at(2 + 10));
    }
}

#[test]
fn a_server_that_does_not_tell_its_history_has_no_vote_as_an_owner_even_if_nodes_are_durable() {
    let identity = saying(ServerRole::Master, b'm', |it| it.replication = None);
    let (mut electorate, first) = with_owner(Voter::durable(quarantine()));
    let admission = connect_owner(&mut electorate, 0, &first, &identity);
    let unmet = [Check::Promotion].into_iter().collect();
    assert_eq!(admission.outcome, Err(Exclusion::Unvetted { unmet }));
    assert_eq!(electorate.eligibility(node(0)), Eligibility::NEVER);
}
