#[cfg(test)]
mod tests;

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
