#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use core::fmt;

use crate::{
    Checks, Eligibility, MemberReport, NodeId, Owner, OwnerRule, Rivals, ServerRole, Sighting,
    Tenure, Timestamp, Voter, Withdrawal, owner_watch::OwnerWatch, sighting::ServerId,
};

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
/// - A replica has no vote: it may lag behind its master. A node of a cluster has none either, unless it
///   votes for a [slot](NodeKind::ClusterSlot): clusters replicate keys and move them.
/// - Where an authority names the master, only a server that it has confirmed for long enough has a vote:
///   see [`OwnerRule`].
/// - A node that does not say enough of itself for the [checks](crate::Check) has no vote, unless the client
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
///         run_id: Some(RunId::new([b'a'; 40])),
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
    kind: NodeKind,
    watch: Option<OwnerWatch>,
    /// The tenure in which the server was connected to, which is the one that the voter knows.
    connected: Option<Tenure>,
    /// Whether the server was excluded when it said last what it is.
    is_excluded: bool,
    /// Whether any server of the node has ever been admitted.
    was_admitted: bool,
    /// The server that the node's address leads to, whether or not it may vote.
    server: Option<ServerId>,
}

/// How the server of a node is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeKind {
    /// The node has an address of its own, and its server is a master.
    Independent,
    /// Sentinels name the master of a group.
    SentinelGroup(OwnerRule),
    /// The nodes of a cluster name the owner of a slot.
    ClusterSlot {
        /// When a vote of the owner counts.
        rule: OwnerRule,
        /// The number of the slot. Two nodes with the same slot of one cluster would vote for the same keys, so
        /// only one of them may vote.
        slot: u16,
        /// Whether the node may get its first vote while another slot of the same server votes. That is no double
        /// vote, since each slot has keys of its own. But both votes fail together. Slots that come together later
        /// keep their votes.
        may_share_server: bool,
    },
}

/// The identity of a node, according to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// There is no server: the node is within the client's process, and forgets nothing.
    InProcess,
    /// The server does not say. A server that is only too busy to answer now is not reported.
    Withheld,
    /// The server says this.
    Server {
        /// Its role.
        role: ServerRole,
        /// Which server it is, and since when.
        sighting: Sighting,
    },
}

/// The consequence of a node's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the driver must act on the outcome, and pass the withdrawal to all leases"]
#[non_exhaustive]
pub struct Admission {
    /// The worth of the node's votes from now on, or why it has none. The driver closes the
    /// connection to an excluded node.
    pub outcome: Result<Eligibility, Exclusion>,
    /// The votes that count for nothing any more.
    ///
    /// The driver passes it to every lease that has not ended. Before that, it notes the eligibility
    /// in it for the replies that come from now on.
    pub withdrawal: Option<Withdrawal>,
    /// The checks that are unmet, because the node does not say what they need. A node that may vote has
    /// some only if the client [allows that](Voter::allowing_unvetted).
    pub unmet: Checks,
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
    /// It is another [slot](NodeKind::ClusterSlot) of a server than a node that votes, and may not share it.
    SharedServer {
        /// The other node.
        other: NodeId,
    },
    /// It is a replica.
    Replica,
    /// It is a node of a cluster.
    ClusterMaster,
    /// It is not a node of a cluster, and must be one.
    NotInCluster,
    /// It does not describe itself.
    IdentityWithheld,
    /// It describes itself, but these checks are unmet.
    Unvetted {
        /// The checks, of which there is at least one.
        unmet: Checks,
    },
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameServer { .. } => "its server is another node already",
            Self::SharedServer { .. } => "its server has another slot that votes",
            Self::Replica => "it is a replica",
            Self::ClusterMaster => "it is a node of a cluster",
            Self::NotInCluster => "it is not a node of a cluster",
            Self::IdentityWithheld => "it does not describe itself",
            Self::Unvetted { .. } => "its description lacks fields",
        })
    }
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

    /// Sets how the server of a node is found. Without this, a node is [independent](NodeKind::Independent).
    /// A driver calls this before it reports anything else about the node.
    pub fn set_kind(&mut self, node: NodeId, kind: NodeKind) {
        let member = self.member(node);
        member.kind = kind;
        member.watch = match kind {
            NodeKind::Independent => None,
            NodeKind::SentinelGroup(rule) => {
                // `SENTINEL MONITOR` begins with epoch 0 each time.
                Some(OwnerWatch::new(rule).with_epochs_that_begin_anew())
            }
            NodeKind::ClusterSlot { rule, .. } => Some(OwnerWatch::new(rule)),
        };
        if member.watch.is_some() {
            member.voter = member.voter.clone().with_failovers();
        }
    }

    /// Takes what a member of a node's authority reports. `now` must be read *after* the report came.
    /// Returns whether the [tenure](Self::tenure) has changed, so that the driver must close the connection to the
    /// earlier owner.
    pub fn handle_report(&mut self, now: Timestamp, node: NodeId, report: MemberReport) -> bool {
        let watch = self.member(node).watch.as_mut();
        watch.is_some_and(|watch| watch.handle_report(now, report))
    }

    /// Notes that a roll call is over: each configured address of a node's authority was asked at `asked_at` or later,
    /// and what it answered was [reported](Self::handle_report), or it was found silent then or later. Returns whether
    /// an owner was confirmed.
    ///
    /// A driver calls this whenever it is true: without it, no first owner is ever confirmed. See [`OwnerRule`].
    pub fn handle_roll_call(&mut self, now: Timestamp, node: NodeId, asked_at: Timestamp) -> bool {
        let watch = self.member(node).watch.as_mut();
        watch.is_some_and(|watch| watch.handle_roll_call(now, asked_at))
    }

    /// Notes that some client had a confirmation of this tenure of the node `age` ago, by a
    /// [marker](crate::AgeMarker) on its owner. `now` must be read *after* the answer came. Changes nothing for a
    /// [sentinel group](NodeKind::SentinelGroup), whose members report ages.
    pub fn handle_marker(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tenure: &Tenure,
        age: core::time::Duration,
    ) {
        if let Some(watch) = &mut self.member(node).watch {
            watch.handle_marker(now, tenure, age);
        }
    }

    /// Returns the tenure of a node that its authority has confirmed last: the server to connect to. There may be none
    /// any more, if two authorities report: see [`OwnerRule`].
    #[must_use]
    pub fn tenure(&self, node: NodeId) -> Option<&Tenure> {
        self.members.get(&node)?.watch.as_ref()?.tenure()
    }

    /// Returns members of two authorities, if members of both report on the node. Nothing is confirmed then. A driver
    /// names both to the operator.
    #[must_use]
    pub fn rivals(&self, node: NodeId) -> Option<Rivals> {
        self.members.get(&node)?.watch.as_ref()?.rivals()
    }

    /// Returns what the node's votes are worth in replies that come now, on the connection that was told
    /// last. For a node whose server an authority names, this changes with each report, so a driver asks
    /// again for each reply. It is [`Eligibility::NEVER`] from the confirmation of another tenure until the
    /// next [connection](Self::handle_owner_connection).
    #[must_use]
    pub fn eligibility(&self, node: NodeId) -> Eligibility {
        let newcomer = || self.newcomer.eligibility();
        self.members
            .get(&node)
            .map_or_else(newcomer, Member::eligibility)
    }

    /// Returns whether the [age](Sighting::history_age) of the server's history is of use, so that the
    /// driver must find it out before it reports the identity.
    #[must_use]
    pub fn needs_history_age(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Server {
                role: ServerRole::Master | ServerRole::ClusterMaster | ServerRole::Withheld,
                sighting:
                    Sighting {
                        replication: Some(replication),
                        ..
                    },
            } => {
                let voters = self.members.values().map(|member| &member.voter);
                let mut voters = voters.chain([&self.newcomer]);
                voters.any(|voter| voter.needs_history_age(*replication))
            }
            Identity::Server { .. } | Identity::InProcess | Identity::Withheld => false,
        }
    }

    /// Notes what the owner of a node says of itself on a new connection, before its first vote. `tenure` is
    /// the [tenure](Self::tenure) of the node whose owner the connection leads to. `now` must be read *after*
    /// the answer came.
    ///
    /// From now on, a reply that came on an earlier connection must not be passed on with the node's
    /// [eligibility](Self::eligibility): it may be a vote of an earlier owner.
    ///
    /// In another tenure another server is expected. So nothing that the node said before is held against
    /// the server, and nothing is withdrawn: the votes of the earlier owner counted by the rule of
    /// [`OwnerRule`].
    pub fn handle_owner_connection(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tenure: &Tenure,
        identity: &Identity,
    ) -> Admission {
        let newcomer = self.newcomer.clone();
        let member = self.member(node);
        if member.connected.as_ref() != Some(tenure) {
            // It is another server on purpose. The authority knows when the locks of the one before are over.
            member.voter = newcomer.with_failovers();
            member.connected = Some(tenure.clone());
        }
        self.handle_connection(now, node, identity)
    }

    /// Notes what a node says of itself on a new connection, before its first vote. `now` must be
    /// read *after* the answer came.
    pub fn handle_connection(
        &mut self,
        now: Timestamp,
        node: NodeId,
        identity: &Identity,
    ) -> Admission {
        self.admit(node, identity, |voter, outcome| match (outcome, identity) {
            (Ok(()), Identity::Server { sighting, .. }) => voter.handle_connection(now, sighting),
            (Err(_), identity) if identity.is_replica() => voter.handle_demotion(now),
            (Ok(()) | Err(_), _) => None,
        })
    }

    /// Notes what a node says of itself while a connection lasts, about once a second. `now` must be
    /// read *after* the answer came.
    pub fn handle_inspection(
        &mut self,
        now: Timestamp,
        node: NodeId,
        identity: &Identity,
    ) -> Admission {
        self.admit(node, identity, |voter, outcome| match (outcome, identity) {
            (Ok(()), Identity::Server { sighting, .. }) => voter.handle_sighting(now, sighting),
            (Ok(()), Identity::InProcess | Identity::Withheld) => None,
            // The excluded server may have voted since the last inspection.
            (Err(_), _) => voter.handle_demotion(now),
        })
    }

    /// Decides what the node's votes are worth, and those that its voter withdraws.
    fn admit(
        &mut self,
        node: NodeId,
        identity: &Identity,
        report: impl FnOnce(&mut Voter, Result<(), Exclusion>) -> Option<Withdrawal>,
    ) -> Admission {
        let outcome = self.examine(node, identity);
        let unmet = self.unmet(node, identity);
        let member = self.member(node);
        let withdrawal = report(&mut member.voter, outcome);
        member.is_excluded = outcome.is_err();
        member.was_admitted |= outcome.is_ok();
        let eligibility = member.eligibility();
        Admission {
            // A server that does not say anything now does not undo what it said before.
            outcome: outcome.map(|()| eligibility),
            withdrawal: withdrawal.map(|withdrawal| Withdrawal {
                eligibility,
                ..withdrawal
            }),
            unmet,
        }
    }

    /// Decides whether a node may vote at all, and notes which server it is.
    fn examine(&mut self, node: NodeId, identity: &Identity) -> Result<(), Exclusion> {
        // The server that was there before may have gone.
        self.member(node).server = None;
        if let Some(exclusion) = self.examine_slot(node) {
            return Err(exclusion);
        }
        let (role, sighting) = match identity {
            Identity::Server { role, sighting } => (role, sighting),
            Identity::Withheld if !self.newcomer.allows_unvetted() => {
                return Err(Exclusion::IdentityWithheld);
            }
            Identity::InProcess | Identity::Withheld => return Ok(()),
        };
        let server = match role {
            ServerRole::Replica => sighting.server().of_replica(),
            ServerRole::Master | ServerRole::ClusterMaster | ServerRole::Withheld => {
                sighting.server()
            }
        };
        // First of all: one server under two addresses is a mistake, whatever its role is.
        let is_slot = self.member(node).slot().is_some();
        let same = |it: &Member| {
            let is_same = it.server.and_then(|known| known.is_same(&server)) == Some(true);
            is_same && !(is_slot && it.slot().is_some())
        };
        if let Some((&other, _)) = self.members.iter().find(|(_, it)| same(it)) {
            return Err(Exclusion::SameServer { other });
        }
        let member = self.member(node);
        member.server = Some(server);
        let must_be_in_cluster = matches!(member.kind, NodeKind::ClusterSlot { .. });
        match (role, must_be_in_cluster) {
            (ServerRole::Replica, _) => return Err(Exclusion::Replica),
            (ServerRole::ClusterMaster, false) => return Err(Exclusion::ClusterMaster),
            (ServerRole::Master | ServerRole::Withheld, true) => {
                return Err(Exclusion::NotInCluster);
            }
            (ServerRole::ClusterMaster, true)
            | (ServerRole::Master | ServerRole::Withheld, false) => {}
        }
        let unmet = self.unmet(node, identity);
        if unmet.is_empty() || self.newcomer.allows_unvetted() {
            Ok(())
        } else {
            Err(Exclusion::Unvetted { unmet })
        }
    }

    /// Returns why the slot of a cluster may not vote together with the others, whose servers the cluster's nodes
    /// name. They do so even where a server does not describe itself.
    fn examine_slot(&self, node: NodeId) -> Option<Exclusion> {
        let member = self.members.get(&node)?;
        let (slot, may_share) = member.slot()?;
        let owner = member.owner()?;
        self.members.iter().find_map(|(&other, it)| {
            let (other_slot, other_may_share) = it.slot()?;
            if other == node || it.is_excluded || it.owner() != Some(owner) {
                return None;
            }
            if slot == other_slot {
                return Some(Exclusion::SameServer { other });
            }
            let may_vote = member.was_admitted || (may_share && other_may_share);
            (!may_vote).then_some(Exclusion::SharedServer { other })
        })
    }

    /// Returns the checks that the rules need, and for which the identity is not enough.
    fn unmet(&self, node: NodeId, identity: &Identity) -> Checks {
        let member = self.members.get(&node);
        let voter = member.map_or(&self.newcomer, |member| &member.voter);
        match identity {
            Identity::InProcess => Checks::NONE,
            Identity::Withheld => {
                let silence = Sighting::of_silence(Timestamp::ZERO);
                voter.unmet(ServerRole::Withheld, &silence)
            }
            Identity::Server { role, sighting } => voter.unmet(*role, sighting),
        }
    }

    fn member(&mut self, node: NodeId) -> &mut Member {
        let newcomer = &self.newcomer;
        self.members.entry(node).or_insert_with(|| Member {
            voter: newcomer.clone(),
            kind: NodeKind::Independent,
            watch: None,
            connected: None,
            is_excluded: false,
            was_admitted: false,
            server: None,
        })
    }
}

impl Member {
    /// Returns the number of the slot that the node is, and whether it may share its server.
    const fn slot(&self) -> Option<(u16, bool)> {
        match self.kind {
            NodeKind::ClusterSlot {
                slot,
                may_share_server,
                ..
            } => Some((slot, may_share_server)),
            NodeKind::Independent | NodeKind::SentinelGroup(_) => None,
        }
    }

    /// Returns the server that is connected to, if the authority still names it.
    fn owner(&self) -> Option<&Owner> {
        let named = self.watch.as_ref()?.tenure()?;
        let connected = self.connected.as_ref()?;
        (named == connected).then_some(&connected.owner)
    }

    fn eligibility(&self) -> Eligibility {
        let voter = self.voter.eligibility();
        match (&self.watch, &self.connected) {
            (None, _) => voter,
            (Some(watch), Some(tenure)) if !self.is_excluded => {
                voter.and(watch.eligibility(tenure))
            }
            (Some(_), _) => Eligibility::NEVER,
        }
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
