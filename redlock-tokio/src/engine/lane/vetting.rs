//! Asks the core whether a node may vote, and says in words why not.

use std::{sync::Arc, time::Duration};

use redlock_core::{
    Admission, Check, Checks, Electorate, Eligibility, Exclusion, Identity, MemberReport, NodeId,
    NodeKind, Quarantine, Rivals, ServerRole, Sighting, Tenure, Timestamp, Voter, Withdrawal,
};
use tokio::sync::watch;

use super::discovery::Tenures;
use crate::{
    Durability, NodeError, log,
    node::{AuthorityKind, Role, Server, ServerInfo},
    sync::Mutex,
};

/// The requirements that nodes must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VettingRules {
    /// How much a restarted node still knows.
    pub(crate) durability: Durability,
    /// For how long a node has no vote that may have forgotten a lock.
    pub(crate) quarantine: Quarantine,
    /// Whether a node that does not say enough of itself may vote.
    pub(crate) allow_unvetted: bool,
}

impl VettingRules {
    fn voter(self) -> Voter {
        let voter = match self.durability {
            Durability::Volatile => Voter::new(self.quarantine),
            Durability::FsyncAlways => Voter::durable(self.quarantine),
            Durability::LosslessFailovers => Voter::lossless(self.quarantine),
            Durability::AssumedForTests => Voter::trusted(self.quarantine),
        };
        if self.allow_unvetted {
            voter.allowing_unvetted()
        } else {
            voter
        }
    }
}

/// A node's description of itself, and when it was asked.
pub(super) struct Statement {
    /// A time before the node was asked.
    pub(super) asked_at: Timestamp,
    pub(super) server: Server,
    /// For how long the server's history exists at least, if that was found out.
    pub(super) history_age: Option<Duration>,
}

impl Statement {
    fn identity(&self) -> Identity {
        let info = match &self.server {
            Server::None => return Identity::InProcess,
            Server::Withheld(_) => return Identity::Withheld,
            Server::Known(info) => info,
        };
        let role = match info.role {
            Role::ReplicaOf(_) => ServerRole::Replica,
            // One that does not say its role, and is a replica, answers `MOVED` and gives no votes.
            Role::Master | Role::Withheld if info.in_cluster => ServerRole::ClusterMaster,
            Role::Master => ServerRole::Master,
            Role::Withheld => ServerRole::Withheld,
        };
        Identity::Server {
            role,
            sighting: Sighting {
                asked_at: self.asked_at,
                run_id: info.run_id,
                uptime: info.uptime,
                replication: info.replication,
                history_age: self.history_age,
            },
        }
    }
}

/// The consequence of a node's identity for its lane.
pub(super) struct Decision {
    /// The worth of the node's votes, or why it may not vote at all.
    pub(super) outcome: Result<Eligibility, NodeError>,
    /// The votes that all leases must give up.
    pub(super) withdrawal: Option<Withdrawal>,
    pub(super) unmet: Checks,
}

/// The nodes of one lock service, as the core has seen them last.
#[derive(Debug)]
pub(crate) struct Vetting {
    rules: VettingRules,
    addresses: Box<[Arc<str>]>,
    /// Locked for each decision as a whole, so that of two addresses of one server, one always gets
    /// no vote.
    electorate: Mutex<Electorate>,
    /// For each node, the tenure that its authority has confirmed last. Sent at each report.
    /// Each has one receiver at a time, its lane: tokio wakes several in random order.
    tenures: Box<[watch::Sender<Option<Tenure>>]>,
}

impl Vetting {
    pub(crate) fn new(rules: VettingRules, addresses: impl IntoIterator<Item = Arc<str>>) -> Self {
        let addresses: Box<[_]> = addresses.into_iter().collect();
        Self {
            rules,
            electorate: Mutex::new(Electorate::new(rules.voter())),
            tenures: addresses.iter().map(|_| watch::Sender::new(None)).collect(),
            addresses,
        }
    }

    pub(crate) fn set_kind(&self, node: NodeId, kind: NodeKind) {
        self.electorate.lock().set_kind(node, kind);
    }

    /// Takes what a member of the node's authority says. `now` must be read after the report came. Returns members of
    /// two authorities that report on the node, if there were none before.
    pub(crate) fn handle_report(
        &self,
        node: NodeId,
        now: Timestamp,
        report: MemberReport,
    ) -> Option<Rivals> {
        let mut electorate = self.electorate.lock();
        let had_rivals = electorate.rivals(node).is_some();
        let has_changed = electorate.handle_report(now, node, report);
        self.pass_tenure(node, &electorate, has_changed);
        electorate.rivals(node).filter(|_| !had_rivals)
    }

    /// Notes that each address of the node's authority was asked at `asked_at` or later, and has answered or is taken
    /// as silent.
    pub(crate) fn handle_roll_call(&self, node: NodeId, now: Timestamp, asked_at: Timestamp) {
        let mut electorate = self.electorate.lock();
        if electorate.handle_roll_call(now, node, asked_at) {
            self.pass_tenure(node, &electorate, true);
        }
    }

    /// Tells the lane which server is the owner. The electorate is locked, so that the last value is the last tenure.
    fn pass_tenure(&self, node: NodeId, electorate: &Electorate, has_changed: bool) {
        let tenure = electorate.tenure(node).cloned();
        if has_changed && let Some(Tenure { owner, epoch }) = &tenure {
            let node = &self.addresses[node.index()];
            log::info!(
                node = %node, %owner, epoch,
                "a majority of the sentinels, or of the cluster's nodes, names this server as the master"
            );
        }
        self.tenures[node.index()].send_replace(tenure);
    }

    /// Returns members of two authorities that report on the node, if there are any.
    pub(super) fn rivals(&self, node: NodeId) -> Option<Rivals> {
        self.electorate.lock().rivals(node)
    }

    /// Returns what logs call the node.
    pub(super) fn address(&self, node: NodeId) -> &Arc<str> {
        &self.addresses[node.index()]
    }

    /// Notes for how long the node's server has been the owner in this tenure, at least.
    pub(super) fn handle_tenure_age(
        &self,
        node: NodeId,
        now: Timestamp,
        tenure: &Tenure,
        age: Duration,
    ) {
        let mut electorate = self.electorate.lock();
        electorate.handle_marker(now, node, tenure, age);
    }

    /// Returns the tenures of a node whose server an authority names.
    pub(super) fn tenures(&self, node: NodeId) -> Tenures {
        Tenures::new(self.tenures[node.index()].subscribe())
    }

    /// Returns what the node's votes are worth in replies that come now.
    pub(super) fn eligibility(&self, node: NodeId) -> Eligibility {
        self.electorate.lock().eligibility(node)
    }

    /// Returns whether the lane must find out for how long the server's history exists.
    pub(super) fn needs_history_age(&self, statement: &Statement) -> bool {
        self.electorate
            .lock()
            .needs_history_age(&statement.identity())
    }

    /// Decides on a node that was just connected to. `refusal` says why it would not do what every
    /// lock needs, if that was found out. `named` says in which tenure an authority has named the server.
    pub(super) fn decide_on_connection(
        &self,
        node: NodeId,
        now: Timestamp,
        statement: &Statement,
        refusal: Option<&NodeError>,
        named: Option<(AuthorityKind, &Tenure)>,
    ) -> Decision {
        let identity = statement.identity();
        let mut electorate = self.electorate.lock();
        let admission = match named {
            Some((_, tenure)) => electorate.handle_owner_connection(now, node, tenure, &identity),
            None => electorate.handle_connection(now, node, &identity),
        };
        drop(electorate);
        let named_by = named.map(|(kind, _)| kind);
        let decision = self.decide(admission, &statement.server, refusal, named_by);
        if decision.outcome.is_ok() {
            self.warn(node, &statement.server, decision.unmet);
        }
        decision
    }

    /// Decides on a node that has said again what it is, on the same connection.
    pub(super) fn decide_on_inspection(
        &self,
        node: NodeId,
        now: Timestamp,
        statement: &Statement,
        named_by: Option<AuthorityKind>,
    ) -> Decision {
        let identity = statement.identity();
        let admission = self
            .electorate
            .lock()
            .handle_inspection(now, node, &identity);
        self.decide(admission, &statement.server, None, named_by)
    }

    fn decide(
        &self,
        admission: Admission,
        server: &Server,
        refusal: Option<&NodeError>,
        named_by: Option<AuthorityKind>,
    ) -> Decision {
        let is_wrong_node = matches!(
            admission.outcome,
            Err(Exclusion::SameServer { .. } | Exclusion::Replica | Exclusion::ClusterMaster)
        );
        let outcome = match refusal {
            // A mistake in the list of nodes comes before one in their configuration.
            Some(refusal) if !is_wrong_node => Err(refusal.clone()),
            _ => {
                let explain = |exclusion| self.explain(exclusion, server, named_by);
                admission.outcome.map_err(explain)
            }
        };
        Decision {
            outcome,
            withdrawal: admission.withdrawal,
            unmet: admission.unmet,
        }
    }

    fn explain(
        &self,
        exclusion: Exclusion,
        server: &Server,
        named_by: Option<AuthorityKind>,
    ) -> NodeError {
        if let (Exclusion::Replica, Some(kind)) = (exclusion, named_by) {
            let members = kind.members();
            let text = format!("the server became a replica, and its {members} name no other yet");
            return NodeError::Unreachable(text.into());
        }
        let text = match (exclusion, server) {
            (Exclusion::SameServer { other }, _) => {
                let address = Arc::clone(&self.addresses[other.index()]);
                return NodeError::SameServer { address };
            }
            (
                Exclusion::Replica,
                Server::Known(ServerInfo {
                    role: Role::ReplicaOf(master),
                    ..
                }),
            ) => format!("a replica of {master}, which may lag behind it: only masters vote"),
            (Exclusion::ClusterMaster, _) => {
                "a node of a cluster, which replicates and moves keys: use masters of their own, or \
                 Redlock::cluster for the cluster as a whole"
                    .into()
            }
            (Exclusion::NotInCluster, _) => {
                "the server does not run as a node of a cluster, although the cluster names it".into()
            }
            (Exclusion::IdentityWithheld, Server::Withheld(error)) => format!(
                "it does not say what it is ({error}): grant +info, or build with \
                 allow_unvetted_nodes"
            ),
            (Exclusion::Unvetted { unmet }, _) => format!(
                "INFO lacks {}, so {}: use a server that has these fields, or accept that by \
                 allow_unvetted_nodes",
                missing_fields(unmet),
                risks(unmet)
            ),
            (exclusion, _) => format!("it must not vote: {exclusion}"),
        };
        NodeError::Misconfigured(text.into())
    }

    /// Warns of what does not keep a node from voting.
    fn warn(&self, node: NodeId, server: &Server, unmet: Checks) {
        let node = &self.addresses[node.index()];
        let risks = risks(unmet);
        let info = match server {
            Server::None => return,
            Server::Withheld(error) => {
                log::warn!(
                    %node, %error, %risks,
                    "the node votes unvetted, since it does not answer INFO"
                );
                return;
            }
            Server::Known(info) => info,
        };
        if !unmet.is_empty() {
            let missing = missing_fields(unmet);
            log::warn!(
                %node, missing, %risks,
                "the node votes unvetted, since INFO lacks some fields"
            );
        }
        let waits = self.rules.durability == Durability::Volatile;
        if waits && info.uptime.is_none() && !unmet.contains(Check::Start) {
            log::warn!(
                %node,
                "the node's INFO lacks uptime_in_seconds, so each new client waits as if the server had just started"
            );
        }
        if let Some(policy) = &info.eviction
            && policy != "noeviction"
        {
            log::warn!(
                %node,
                policy,
                "the node evicts keys when memory is short, and locks first if they have the least time \
                 left: set maxmemory-policy noeviction"
            );
        }
        if self.rules.durability == Durability::FsyncAlways && !info.appends_to_file {
            log::warn!(
                %node,
                "the node is said to be durable, but appendonly is off: a restart forgets locks"
            );
        }
    }
}

/// Returns the fields of `INFO` that are missing.
fn missing_fields(unmet: Checks) -> String {
    listed(unmet, |check| match check {
        Check::Server => "run_id and master_replid",
        Check::Role => "role",
        Check::Start => "uptime_in_seconds",
        Check::Promotion => "master_replid2",
        _ => "a field",
    })
}

/// Returns what the client would not notice.
fn risks(unmet: Checks) -> String {
    listed(unmet, |check| match check {
        Check::Server => "one server under two addresses would vote twice",
        Check::Role => "a replica would vote",
        Check::Start => {
            "a restarted server would vote at once, although it may have forgotten locks"
        }
        Check::Promotion => "a promoted replica would vote at once, although it may lack locks",
        _ => "a check would be left out",
    })
}

fn listed(unmet: Checks, text: impl Fn(Check) -> &'static str) -> String {
    let texts: Vec<_> = unmet.iter().map(text).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_core::{Drift, RunId, Ttl};

    /// Two nodes, with a quarantine of 10 s.
    fn vetting(allow_unvetted: bool) -> Vetting {
        let max_ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let quarantine = Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO));
        let rules = VettingRules {
            durability: Durability::Volatile,
            quarantine,
            allow_unvetted,
        };
        Vetting::new(rules, ["a".into(), "b".into()])
    }

    fn info(letter: u8) -> ServerInfo {
        ServerInfo::new(RunId::new([letter; 40]), Duration::from_secs(500))
    }

    fn withheld() -> Server {
        Server::Withheld(NodeError::Refused {
            code: "NOPERM".into(),
            message: "no rights".into(),
        })
    }

    fn connect(
        vetting: &Vetting,
        node: usize,
        server: Server,
        refusal: Option<&NodeError>,
    ) -> Result<Eligibility, NodeError> {
        let statement = Statement {
            asked_at: Timestamp::ZERO,
            server,
            history_age: None,
        };
        let node = NodeId::new(node).unwrap();
        vetting
            .decide_on_connection(node, Timestamp::ZERO, &statement, refusal, None)
            .outcome
    }

    #[test]
    fn a_wrong_node_comes_before_its_missing_rights_and_those_before_what_it_does_not_say() {
        let refusal = NodeError::Misconfigured("may not SET".into());
        let vetting = vetting(false);
        let replica = ServerInfo {
            role: Role::ReplicaOf("m:6379".into()),
            ..info(b'x')
        };
        let error = connect(&vetting, 0, Server::Known(replica), Some(&refusal));
        assert_ne!(error, Err(refusal.clone()));
        for server in [Server::None, Server::Known(info(b'x')), withheld()] {
            let error = connect(&vetting, 0, server, Some(&refusal));
            assert_eq!(error, Err(refusal.clone()));
        }
    }
}
