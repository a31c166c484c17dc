//! Which nodes may vote, whatever nodes say of themselves in whatever order.

use std::{cell::Cell, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use redlock_core::{
    Admission, Drift, Electorate, Exclusion, Identity, NodeId, Origin, Quarantine, Replication,
    ReplicationId, RunId, ServerRole, Sighting, Timestamp, Ttl, Voter, Withdrawal,
};

use crate::{check, finds};

const NODES: usize = 3;

/// A node says what it is.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: usize,
    is_inspection: bool,
    /// The server that its address leads to, if the server says so.
    server: Option<Server>,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    letter: u8,
    role: ServerRole,
    hides: Hidden,
}

/// A field that the server leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Nothing,
    RunId,
    Uptime,
    SecondHistory,
    Replication,
    /// So that nothing tells it from other servers.
    RunIdAndReplication,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Hidden::{Nothing, Replication, RunId, RunIdAndReplication, SecondHistory, Uptime};
    use ServerRole::{ClusterMaster, Master, Replica, Withheld};
    let roles = prop_oneof![
        4 => Just(Master),
        3 => select(&[Replica, ClusterMaster, Withheld][..]),
    ];
    let hides = prop_oneof![
        4 => Just(Nothing),
        4 => Just(RunId),
        2 => select(&[Uptime, SecondHistory, Replication, RunIdAndReplication][..]),
    ];
    let server = (b'a'..=b'd', roles, hides);
    let server = server.prop_map(|(letter, role, hides)| Server {
        letter,
        role,
        hides,
    });
    let step = (0..NODES, any::<bool>(), option::weighted(0.9, server));
    let step = step.prop_map(|(node, is_inspection, server)| Step {
        node,
        is_inspection,
        server,
    });
    vec(step, 1..30)
}

fn quarantine() -> Quarantine {
    let max_ttl = Ttl::new(Duration::from_secs(10)).expect("within range");
    Quarantine::new(max_ttl, Drift::default())
}

/// Nodes whose votes can be taken back.
fn vetted_voters() -> impl Strategy<Value = Voter> {
    select(vec![
        Voter::new(quarantine()),
        Voter::new(quarantine()).allowing_unvetted(),
        Voter::durable(quarantine()),
    ])
}

fn voters() -> impl Strategy<Value = Voter> {
    prop_oneof![3 => vetted_voters(), 1 => Just(Voter::trusted(quarantine()))]
}

fn at(second: usize) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + second as u64))
}

impl Server {
    /// Returns whether it says its run id, and the id of its history.
    fn says(self) -> (bool, bool) {
        let hides = |fields: &[Hidden]| fields.contains(&self.hides);
        (
            !hides(&[Hidden::RunId, Hidden::RunIdAndReplication]),
            !hides(&[Hidden::Replication, Hidden::RunIdAndReplication]),
        )
    }

    /// Returns whether both are one server, and say an id in common.
    fn is_known_as(self, other: Self) -> bool {
        let (ours, theirs) = (self.says(), other.says());
        self.letter == other.letter && (ours.0 && theirs.0 || ours.1 && theirs.1)
    }
}

impl Step {
    /// What the node says when it is asked in this second. All servers started at the same time.
    fn identity(self, second: usize) -> Identity {
        let Some(server) = self.server else {
            return Identity::Withheld;
        };
        let hides = server.hides;
        let (says_run_id, says_history) = server.says();
        let uptime = Duration::from_secs(5000 + second as u64);
        Identity::Server {
            role: server.role,
            sighting: Sighting {
                asked_at: at(second),
                run_id: says_run_id.then_some(RunId::new([server.letter; RunId::LEN])),
                uptime: (hides != Hidden::Uptime).then_some(uptime),
                replication: says_history.then_some(Replication {
                    id: ReplicationId::new([server.letter; ReplicationId::LEN]),
                    origin: match hides {
                        Hidden::SecondHistory => Origin::Withheld,
                        _ => Origin::Own,
                    },
                }),
                history_age: None,
            },
        }
    }

    fn tell(self, second: usize, electorate: &mut Electorate) -> Admission {
        let node = NodeId::new(self.node).expect("fewer than 64 nodes");
        let identity = self.identity(second);
        if self.is_inspection {
            electorate.handle_inspection(at(second), node, &identity)
        } else {
            electorate.handle_connection(at(second), node, &identity)
        }
    }
}

/// Returns whether one server has ever two votes, if these are the admissions of the steps. `is_one` says
/// whether two descriptions are of one server.
fn votes_twice(
    steps: &[Step],
    is_one: impl Fn(Server, Server) -> bool,
    mut admit: impl FnMut(usize, Step) -> Admission,
) -> bool {
    let mut voting: [Option<Server>; NODES] = [None; NODES];
    for (second, &step) in steps.iter().enumerate() {
        let is_admitted = admit(second, step).outcome.is_ok();
        voting[step.node] = step.server.filter(|_| is_admitted);
        let Some(server) = voting[step.node] else {
            continue;
        };
        let is_other_vote =
            |other: usize| other != step.node && voting[other].is_some_and(|it| is_one(it, server));
        if (0..NODES).any(is_other_vote) {
            return true;
        }
    }
    false
}

#[test]
fn no_server_votes_twice() {
    let found_by_history = Cell::new(false);
    check(2000, &(voters(), steps()), |(voter, steps)| {
        let mut electorate = Electorate::new(voter);
        let twice = votes_twice(&steps, Server::is_known_as, |second, step| {
            let admission = step.tell(second, &mut electorate);
            let is_same = matches!(admission.outcome, Err(Exclusion::SameServer { .. }));
            let hides = step.server.map(|it| it.hides);
            found_by_history.set(found_by_history.get() || is_same && hides == Some(Hidden::RunId));
            admission
        });
        prop_assert!(!twice);
        Ok(())
    });
    assert!(found_by_history.get(), "no server was known by its history");
}

/// The control: a driver with an electorate for each node counts servers twice.
#[test]
fn servers_vote_twice_if_each_node_has_an_electorate_of_its_own() {
    let found = finds(2000, &(voters(), steps()), |(voter, steps)| {
        let mut electorates = [(); NODES].map(|()| Electorate::new(voter.clone()));
        votes_twice(&steps, Server::is_known_as, |second, step| {
            step.tell(second, &mut electorates[step.node])
        })
    });
    assert!(found, "the property notices nothing");
}

/// What a client allows that gives unvetted nodes a vote, as a control, and what it does not allow otherwise.
#[test]
fn servers_that_nothing_tells_apart_vote_twice_only_if_the_client_allows_that() {
    let vote_twice = |voter: &Voter, steps: &[Step]| {
        let is_one = |one: Server, other: Server| {
            one.letter == other.letter && [one, other].map(Server::says) == [(false, false); 2]
        };
        let mut electorate = Electorate::new(voter.clone());
        votes_twice(steps, is_one, |second, step| {
            step.tell(second, &mut electorate)
        })
    };
    let strict = Voter::new(quarantine());
    let lenient = strict.clone().allowing_unvetted();
    check(2000, &steps(), |steps| {
        prop_assert!(!vote_twice(&strict, &steps));
        Ok(())
    });
    assert!(finds(2000, &steps(), |steps| vote_twice(&lenient, &steps)));
}

#[test]
fn a_node_that_voted_and_is_excluded_under_its_connection_has_its_votes_withdrawn() {
    check(2000, &(vetted_voters(), steps()), |(voter, steps)| {
        let mut electorate = Electorate::new(voter);
        // When the server was asked that last gave votes.
        let mut voted_since: [Option<Timestamp>; NODES] = [None; NODES];
        for (second, step) in steps.into_iter().enumerate() {
            let admission = step.tell(second, &mut electorate);
            match admission.outcome {
                Ok(_) if step.server.is_some() => voted_since[step.node] = Some(at(second)),
                Ok(_) => {}
                Err(_) if step.is_inspection => {
                    let since = admission.withdrawal.map(|it| it.since);
                    prop_assert_eq!(since, voted_since[step.node].take());
                    let covers = |it: Withdrawal| it.eligibility.covers(at(second));
                    prop_assert!(!admission.withdrawal.is_some_and(covers));
                }
                Err(_) if admission.withdrawal.is_some() => voted_since[step.node] = None,
                Err(_) => {}
            }
        }
        Ok(())
    });
}
