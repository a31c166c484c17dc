//! Which nodes may vote, whatever nodes say of themselves in whatever order.

use std::{cell::Cell, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use redlock_core::{
    Admission, Drift, Electorate, Exclusion, Identity, NodeId, Quarantine, Replication,
    ReplicationId, RunId, ServerRole, Sighting, Timestamp, Ttl, Voter,
};

use crate::check;

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
    tells_history: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use ServerRole::{ClusterMaster, Master, Replica};
    let roles = select(&[Master, Master, Master, Replica, ClusterMaster]);
    let server = (b'a'..=b'd', roles, prop::bool::weighted(0.9));
    let server = server.prop_map(|(letter, role, tells_history)| Server {
        letter,
        role,
        tells_history,
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

impl Step {
    /// What the node says when it is asked in this second. All servers started at the same time.
    fn identity(self, second: usize) -> Identity {
        let Some(server) = self.server else {
            return Identity::Withheld;
        };
        Identity::Server {
            role: server.role,
            sighting: Sighting {
                asked_at: at(second),
                run_id: RunId::new([server.letter; RunId::LEN]),
                uptime: Some(Duration::from_secs(5000 + second as u64)),
                replication: server.tells_history.then_some(Replication {
                    id: ReplicationId::new([server.letter; ReplicationId::LEN]),
                    continues: None,
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

/// Returns whether one server has ever two votes, if these are the admissions of the steps.
fn votes_twice(steps: &[Step], mut admit: impl FnMut(usize, Step) -> Admission) -> bool {
    let mut voting: [Option<u8>; NODES] = [None; NODES];
    for (second, &step) in steps.iter().enumerate() {
        let is_admitted = admit(second, step).outcome.is_ok();
        let server = step.server.map(|server| server.letter);
        voting[step.node] = server.filter(|_| is_admitted);
        let is_counted = |other: usize| other != step.node && voting[other] == voting[step.node];
        if voting[step.node].is_some() && (0..NODES).any(is_counted) {
            return true;
        }
    }
    false
}

#[test]
fn no_server_votes_twice() {
    check(2000, &(voters(), steps()), |(voter, steps)| {
        let mut electorate = Electorate::new(voter);
        let twice = votes_twice(&steps, |second, step| step.tell(second, &mut electorate));
        prop_assert!(!twice);
        Ok(())
    });
}

/// The control: a driver with an electorate for each node counts servers twice.
#[test]
fn servers_vote_twice_if_each_node_has_an_electorate_of_its_own() {
    let found = Cell::new(false);
    check(2000, &(voters(), steps()), |(voter, steps)| {
        let mut electorates = [(); NODES].map(|()| Electorate::new(voter.clone()));
        let twice = votes_twice(&steps, |second, step| {
            step.tell(second, &mut electorates[step.node])
        });
        found.set(found.get() || twice);
        Ok(())
    });
    assert!(found.get(), "the property notices nothing");
}

#[test]
fn each_exclusion_has_its_reason() {
    check(2000, &(voters(), steps()), |(voter, steps)| {
        let mut electorate = Electorate::new(voter.clone());
        let mut seen: [Option<u8>; NODES] = [None; NODES];
        for (second, step) in steps.into_iter().enumerate() {
            let admission = step.tell(second, &mut electorate);
            let says = step.server;
            let has_role = |role| says.is_some_and(|server| server.role == role);
            match admission.outcome {
                Ok(_) => prop_assert!(says.is_none() || has_role(ServerRole::Master)),
                Err(Exclusion::SameServer { other }) => {
                    prop_assert_ne!(other.index(), step.node);
                    prop_assert_eq!(seen[other.index()], says.map(|server| server.letter));
                }
                Err(Exclusion::Replica) => prop_assert!(has_role(ServerRole::Replica)),
                Err(Exclusion::ClusterMaster) => prop_assert!(has_role(ServerRole::ClusterMaster)),
                Err(Exclusion::IdentityWithheld) => prop_assert!(says.is_none()),
                Err(Exclusion::HistoryWithheld) => {
                    prop_assert!(says.is_some_and(|server| !server.tells_history));
                }
                Err(_) => prop_assert!(false, "an exclusion that this test does not know"),
            }
            let is_duplicate = matches!(admission.outcome, Err(Exclusion::SameServer { .. }));
            let server = says.map(|server| server.letter);
            seen[step.node] = server.filter(|_| !is_duplicate);
        }
        Ok(())
    });
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
                    let covers = admission
                        .withdrawal
                        .map(|it| it.eligibility.covers(at(second)));
                    prop_assert_ne!(covers, Some(true));
                }
                Err(_) if admission.withdrawal.is_some() => voted_since[step.node] = None,
                Err(_) => {}
            }
        }
        Ok(())
    });
}
