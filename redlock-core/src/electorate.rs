use alloc::collections::BTreeMap;

use crate::{Eligibility, NodeId, RunId, Sighting, Timestamp, Voter, Withdrawal};

/// All nodes of one lock service as voters: which of them may vote, and from when on.
///
/// A driver keeps one, from the start of the client to its end, and tells it what each node says of
/// itself: on each new connection ([`handle_connection`](Self::handle_connection)), and about once a
/// second while that connection lasts ([`handle_inspection`](Self::handle_inspection)). It must tell
/// all nodes to the same electorate, one after the other.
///
/// The electorate decides what no node shows alone:
///
/// - One server that two addresses lead to has one vote. With two it would be a majority with one
///   node more.
/// - A replica has no vote: it may lag behind its master. A node of a cluster has none either:
///   clusters replicate keys and move them.
/// - A node that does not say what it is has no vote, unless the client
///   [allows that](Voter::allowing_unvetted).
/// - A node that is excluded while its connection lasts has its last votes withdrawn: another server
///   may have given them.
///
/// The [`Voter`] of each node decides the rest.
///
/// ```
/// use core::time::Duration;
/// use redlock_core::{
///     Drift, Electorate, Exclusion, Identity, NodeId, Quarantine, RunId, Sighting, ServerRole,
///     Timestamp, Ttl, Voter,
/// };
///
/// let max_ttl = Ttl::new(Duration::from_secs(10)).unwrap();
/// let voter = Voter::new(Quarantine::new(max_ttl, Drift::default())).allowing_unvetted();
/// let mut electorate = Electorate::new(voter);
/// let [first, second] = [0, 1].map(|index| NodeId::new(index).unwrap());
/// let now = Timestamp::ZERO;
/// let server = Identity::Server {
///     role: ServerRole::Master,
///     sighting: Sighting {
///         asked_at: now,
///         run_id: RunId::new([b'a'; 40]),
///         uptime: Some(Duration::from_secs(3600)),
///         replication: None,
///         history_age: None,
///     },
/// };
/// assert!(electorate.handle_connection(now, first, &server).outcome.is_ok());
/// let twice = electorate.handle_connection(now, second, &server);
/// assert_eq!(twice.outcome, Err(Exclusion::SameServer { other: first }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Electorate {
    /// A node that nothing is known of yet.
    newcomer: Voter,
    members: BTreeMap<NodeId, Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    voter: Voter,
    /// The server that the node's address leads to, whether or not it may vote.
    server: Option<RunId>,
}

/// What a node says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// There is no server: the node is within the client's process, and forgets nothing.
    InProcess,
    /// The server does not say. A server that is only too busy to answer now is not reported.
    Withheld,
    /// The server says this.
    Server {
        /// What it does.
        role: ServerRole,
        /// Which server it is, and since when.
        sighting: Sighting,
    },
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerRole {
    /// It keeps keys of its own.
    Master,
    /// It copies a master, in a cluster or not.
    Replica,
    /// It is a master in a cluster.
    ClusterMaster,
}

/// What becomes of a node that has said what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the driver must act on the outcome, and tell the withdrawal to all leases"]
pub struct Admission {
    /// What the node's votes are worth from now on, or why it has none. The driver closes the
    /// connection to an excluded node.
    pub outcome: Result<Eligibility, Exclusion>,
    /// The votes that count for nothing any more.
    ///
    /// The driver tells it to every lease that is not closed. Before that, it notes the eligibility
    /// in it for the replies that come from now on.
    pub withdrawal: Option<Withdrawal>,
}

/// Why a node has no vote until somebody changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exclusion {
    /// Its address leads to the server that is another node already.
    SameServer {
        /// The other node.
        other: NodeId,
    },
    /// It is a replica.
    Replica,
    /// It is a node of a cluster.
    ClusterMaster,
    /// It does not say what it is.
    IdentityWithheld,
    /// It does not say whether it was promoted, so it may lack locks.
    HistoryWithheld,
}

impl Electorate {
    /// Creates the electorate of nodes of which nothing is known yet. Each of them starts as a clone
    /// of `newcomer`.
    #[must_use]
    pub const fn new(newcomer: Voter) -> Self {
        Self {
            newcomer,
            members: BTreeMap::new(),
        }
    }

    /// Returns whether the [age](Sighting::history_age) of the server's history is of use, so that the
    /// driver must find it out before it tells the identity.
    #[must_use]
    pub fn needs_history_age(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Server {
                role: ServerRole::Master,
                sighting:
                    Sighting {
                        replication: Some(replication),
                        ..
                    },
            } => self.newcomer.needs_history_age(*replication),
            Identity::Server { .. } | Identity::InProcess | Identity::Withheld => false,
        }
    }

    /// Notes what a node says of itself on a new connection, before its first vote. `now` must be
    /// read *after* the answer came.
    pub fn handle_connection(
        &mut self,
        now: Timestamp,
        node: NodeId,
        identity: &Identity,
    ) -> Admission {
        let outcome = self.examine(node, identity);
        let voter = &mut self.member(node).voter;
        let withdrawal = match (outcome, identity) {
            (Ok(()), Identity::Server { sighting, .. }) => voter.handle_connection(now, sighting),
            (Err(_), identity) if identity.is_replica() => voter.handle_demotion(now),
            (Ok(()) | Err(_), _) => None,
        };
        Admission::new(outcome, identity, voter, withdrawal)
    }

    /// Notes what a node says of itself while a connection lasts, about once a second. `now` must be
    /// read *after* the answer came.
    pub fn handle_inspection(
        &mut self,
        now: Timestamp,
        node: NodeId,
        identity: &Identity,
    ) -> Admission {
        let outcome = self.examine(node, identity);
        let voter = &mut self.member(node).voter;
        let withdrawal = match (outcome, identity) {
            (Ok(()), Identity::Server { sighting, .. }) => voter.handle_sighting(now, sighting),
            (Ok(()), Identity::InProcess | Identity::Withheld) => None,
            // The excluded server may have voted since the last inspection.
            (Err(_), _) => voter.handle_demotion(now),
        };
        Admission::new(outcome, identity, voter, withdrawal)
    }

    /// Decides whether a node may vote at all, and notes which server it is.
    fn examine(&mut self, node: NodeId, identity: &Identity) -> Result<(), Exclusion> {
        // The server that was there before may have gone.
        self.member(node).server = None;
        let (role, sighting) = match identity {
            Identity::Server { role, sighting } => (role, sighting),
            Identity::Withheld if !self.newcomer.allows_unvetted() => {
                return Err(Exclusion::IdentityWithheld);
            }
            Identity::InProcess | Identity::Withheld => return Ok(()),
        };
        // First of all: one server under two addresses is a mistake, whatever its role is.
        let server = Some(sighting.run_id);
        if let Some((&other, _)) = self.members.iter().find(|(_, it)| it.server == server) {
            return Err(Exclusion::SameServer { other });
        }
        self.member(node).server = server;
        match role {
            ServerRole::Replica => Err(Exclusion::Replica),
            ServerRole::ClusterMaster => Err(Exclusion::ClusterMaster),
            ServerRole::Master
                if sighting.replication.is_none() && self.newcomer.needs_vetting() =>
            {
                Err(Exclusion::HistoryWithheld)
            }
            ServerRole::Master => Ok(()),
        }
    }

    fn member(&mut self, node: NodeId) -> &mut Member {
        let newcomer = &self.newcomer;
        self.members.entry(node).or_insert_with(|| Member {
            voter: newcomer.clone(),
            server: None,
        })
    }
}

impl Identity {
    fn is_replica(&self) -> bool {
        matches!(
            self,
            Self::Server {
                role: ServerRole::Replica,
                ..
            }
        )
    }
}

impl Admission {
    fn new(
        outcome: Result<(), Exclusion>,
        identity: &Identity,
        voter: &Voter,
        withdrawal: Option<Withdrawal>,
    ) -> Self {
        let eligibility = || match identity {
            Identity::InProcess => Eligibility::ALWAYS,
            // A server that says nothing now does not undo what it said before.
            Identity::Withheld | Identity::Server { .. } => voter.eligibility(),
        };
        Self {
            outcome: outcome.map(|()| eligibility()),
            withdrawal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Quarantine, Replication, ReplicationId, Ttl};
    use core::time::Duration;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + seconds))
    }

    fn node(index: usize) -> NodeId {
        NodeId::new(index).unwrap()
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
                run_id: RunId::new([letter; RunId::LEN]),
                uptime: Some(Duration::from_secs(uptime)),
                replication: Some(Replication {
                    id: ReplicationId::new([letter; ReplicationId::LEN]),
                    continues: None,
                }),
                history_age: None,
            },
        }
    }

    fn master(letter: u8) -> Identity {
        server(ServerRole::Master, letter, 500)
    }

    /// An electorate whose node 0 is a master that has been up for long.
    fn with_first(voter: Voter) -> Electorate {
        let mut electorate = Electorate::new(voter);
        let admission = electorate.handle_connection(at(0), node(0), &master(b'x'));
        assert_eq!(admission.outcome, Ok(Eligibility::ALWAYS));
        electorate
    }

    #[test]
    fn one_server_under_two_addresses_has_one_vote() {
        let mut electorate = with_first(voter());
        let twice = electorate.handle_connection(at(0), node(1), &master(b'x'));
        let same = Err(Exclusion::SameServer { other: node(0) });
        assert_eq!(twice.outcome, same);
        assert_eq!(twice.withdrawal, None, "it has not voted");
        // When node 0 is another server, node 1 may be this one.
        let moved = electorate.handle_connection(at(1), node(0), &master(b'y'));
        assert!(moved.outcome.is_ok());
        let alone = electorate.handle_connection(at(2), node(1), &master(b'x'));
        assert!(alone.outcome.is_ok());
    }

    #[test]
    fn a_server_may_be_connected_to_again() {
        let mut electorate = with_first(voter());
        let again = electorate.handle_connection(at(1), node(0), &master(b'x'));
        assert_eq!(again.outcome, Ok(Eligibility::ALWAYS));
    }

    #[test]
    fn replicas_and_nodes_of_a_cluster_have_no_vote() {
        let mut electorate = Electorate::new(voter());
        for (index, role, exclusion) in [
            (0, ServerRole::Replica, Exclusion::Replica),
            (1, ServerRole::ClusterMaster, Exclusion::ClusterMaster),
        ] {
            let identity = server(role, b'a' + index as u8, 500);
            let admission = electorate.handle_connection(at(0), node(index), &identity);
            assert_eq!(admission.outcome, Err(exclusion));
        }
        let both = server(ServerRole::Replica, b'b', 500);
        let admission = electorate.handle_connection(at(0), node(2), &both);
        let same = Exclusion::SameServer { other: node(1) };
        assert_eq!(
            admission.outcome,
            Err(same),
            "a duplicate, whatever its role"
        );
    }

    #[test]
    fn a_node_that_does_not_say_what_it_is_has_no_vote_unless_the_client_allows_that() {
        let mut strict = Electorate::new(voter());
        let admission = strict.handle_connection(at(0), node(0), &Identity::Withheld);
        assert_eq!(admission.outcome, Err(Exclusion::IdentityWithheld));

        let mut lenient = Electorate::new(voter().allowing_unvetted());
        let admission = lenient.handle_connection(at(0), node(0), &Identity::Withheld);
        assert_eq!(admission.outcome, Ok(Eligibility::ALWAYS));
    }

    #[test]
    fn a_server_that_does_not_tell_its_history_has_no_vote_unless_restarts_are_harmless() {
        let mut identity = master(b'x');
        if let Identity::Server { sighting, .. } = &mut identity {
            sighting.replication = None;
        }
        let outcome = |voter| {
            let mut electorate = Electorate::new(voter);
            electorate
                .handle_connection(at(0), node(0), &identity)
                .outcome
        };
        assert_eq!(outcome(voter()), Err(Exclusion::HistoryWithheld));
        for voter in [
            voter().allowing_unvetted(),
            Voter::durable(quarantine()),
            Voter::trusted(quarantine()),
        ] {
            assert_eq!(outcome(voter), Ok(Eligibility::ALWAYS));
        }
    }

    #[test]
    fn a_node_within_the_process_always_votes() {
        let mut electorate = Electorate::new(voter());
        for index in 0..2 {
            let admission = electorate.handle_connection(at(0), node(index), &Identity::InProcess);
            assert_eq!(admission.outcome, Ok(Eligibility::ALWAYS));
        }
    }

    #[test]
    fn a_restarted_server_that_no_longer_says_what_it_is_stays_in_quarantine() {
        let mut electorate = with_first(voter().allowing_unvetted());
        let fresh = server(ServerRole::Master, b'y', 1);
        let restarted = electorate.handle_connection(at(20), node(0), &fresh);
        assert_eq!(restarted.outcome, Ok(Eligibility::since(at(30))));
        let withheld = electorate.handle_connection(at(21), node(0), &Identity::Withheld);
        assert_eq!(withheld.outcome, Ok(Eligibility::since(at(30))));
    }

    #[test]
    fn a_replica_that_no_longer_says_what_it_is_stays_in_quarantine() {
        let mut electorate = with_first(voter().allowing_unvetted());
        let replica = server(ServerRole::Replica, b'x', 510);
        let refused = electorate.handle_inspection(at(10), node(0), &replica);
        assert_eq!(refused.outcome, Err(Exclusion::Replica));
        let withheld = electorate.handle_connection(at(11), node(0), &Identity::Withheld);
        assert!(!withheld.outcome.unwrap().covers(at(11)));
    }

    #[test]
    fn a_replica_is_known_by_its_next_connection_too() {
        let mut electorate = with_first(voter());
        let replica = server(ServerRole::Replica, b'x', 510);
        let refused = electorate.handle_connection(at(10), node(0), &replica);
        assert!(
            refused.withdrawal.is_some(),
            "it may have been one for a while"
        );
        let master = electorate.handle_connection(at(12), node(0), &master(b'x'));
        assert_eq!(master.outcome, Ok(Eligibility::since(at(22))));
    }

    #[test]
    fn a_server_that_is_excluded_under_a_connection_has_its_last_votes_withdrawn() {
        for (identity, exclusion) in [
            (master(b'x'), Exclusion::SameServer { other: node(0) }),
            (server(ServerRole::Replica, b'y', 501), Exclusion::Replica),
            (
                server(ServerRole::ClusterMaster, b'z', 501),
                Exclusion::ClusterMaster,
            ),
            (Identity::Withheld, Exclusion::IdentityWithheld),
        ] {
            let mut electorate = with_first(voter());
            let second = electorate.handle_connection(at(0), node(1), &master(b'y'));
            assert!(second.outcome.is_ok());
            let inspected = electorate.handle_inspection(at(1), node(1), &identity);
            assert_eq!(inspected.outcome, Err(exclusion));
            let withdrawal = inspected.withdrawal.expect("it has voted");
            assert_eq!(withdrawal.since, at(0));
            assert_eq!(withdrawal.eligibility, Eligibility::since(at(11)));
        }
    }

    #[test]
    fn another_server_in_its_place_waits_and_its_last_votes_are_withdrawn() {
        let mut electorate = with_first(voter());
        let inspected = electorate.handle_inspection(at(1), node(0), &master(b'z'));
        assert_eq!(inspected.outcome, Ok(Eligibility::since(at(11))));
        assert!(inspected.withdrawal.is_some());
    }

    #[test]
    fn the_age_of_a_history_is_of_use_only_for_a_master_that_may_have_been_promoted() {
        let electorate = Electorate::new(voter());
        let promoted = |role| {
            let mut identity = server(role, b'x', 500);
            if let Identity::Server { sighting, .. } = &mut identity
                && let Some(replication) = &mut sighting.replication
            {
                replication.continues = Some(replication.id);
            }
            identity
        };
        assert!(electorate.needs_history_age(&promoted(ServerRole::Master)));
        for identity in [
            promoted(ServerRole::Replica),
            master(b'x'),
            Identity::Withheld,
            Identity::InProcess,
        ] {
            assert!(!electorate.needs_history_age(&identity), "{identity:?}");
        }
        let durable = Electorate::new(Voter::durable(quarantine()));
        assert!(!durable.needs_history_age(&promoted(ServerRole::Master)));
    }
}
