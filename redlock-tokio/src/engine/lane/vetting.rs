//! Asks the core whether a node may vote, and says in words why not.

use std::{sync::Arc, time::Duration};

use redlock_core::{
    Check, Checks, Electorate, Eligibility, Exclusion, NodeId, Quarantine, Rivals, Tenure,
    Timestamp, Voter, Withdrawal,
};
use tokio::{sync::watch, time::Instant};

use super::{connecting::Statement, discovery::Tenures, status::StatusBoard};
use crate::{
    Clock, Durability, NodeError,
    engine::requests::Link,
    log,
    node::{NamedBy, News, Role, Server, ServerInfo},
    shown_time::ShownTime,
    sync::Mutex,
};

/// Tokio's timers stand still while the machine sleeps, so the lane reads the clock at least once
/// per second.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The nodes of one lock service, as the core has seen them last.
#[derive(Debug)]
pub(crate) struct Vetting {
    durability: Durability,
    addresses: Box<[Arc<str>]>,
    /// Locked for each decision as a whole, so that of two addresses of one server, one always gets
    /// no vote.
    pub(super) electorate: Mutex<Electorate>,
    /// For each node, the tenure that its authority has confirmed last. Sent at each report.
    /// Each has one receiver at a time, its lane: tokio wakes several in random order.
    tenures: Box<[watch::Sender<Option<Tenure>>]>,
}

impl Vetting {
    /// `durability` is how much a restarted node still knows. For the time of `quarantine`, a node that may have
    /// forgotten a lock has no vote. `allow_unvetted` says whether a node that does not say enough of itself may vote.
    pub(crate) fn new(
        durability: Durability,
        quarantine: Quarantine,
        allow_unvetted: bool,
        addresses: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        let mut voter = match durability {
            Durability::Volatile => Voter::new(quarantine),
            Durability::FsyncAlways => Voter::durable(quarantine),
            Durability::LosslessFailovers => Voter::lossless(quarantine),
            Durability::AssumedForTests => Voter::trusted(quarantine),
        };
        if allow_unvetted {
            voter = voter.allowing_unvetted();
        }
        let addresses: Box<[_]> = addresses.into_iter().collect();
        Self {
            durability,
            electorate: Mutex::new(Electorate::new(voter)),
            tenures: addresses.iter().map(|_| watch::Sender::new(None)).collect(),
            addresses,
        }
    }

    /// Passes what a node's authority says on to the electorate, and what follows from it on to the lane. `now` must be
    /// read after the news came.
    pub(super) fn handle_news(&self, node: NodeId, now: Timestamp, news: &News) -> OwnerNews {
        let mut electorate = self.electorate.lock();
        let had_rivals = electorate.rivals(node).is_some();
        let is_new = match news {
            News::Report(_, report) => electorate.handle_report(now, node, report.clone()),
            News::RollCall(asked_at) => electorate.handle_roll_call(now, node, *asked_at),
        };
        let tenure = electorate.tenure(node).cloned();
        if is_new || matches!(news, News::Report(..)) {
            // While the electorate is locked, so that the last value is the last tenure.
            self.tenures[node.index()].send_replace(tenure.clone());
        }
        OwnerNews {
            tenure: tenure.filter(|_| is_new),
            rivals: electorate.rivals(node).filter(|_| !had_rivals),
        }
    }

    /// Returns what logs call the node.
    pub(super) fn address(&self, node: NodeId) -> &Arc<str> {
        &self.addresses[node.index()]
    }

    /// Returns the tenure of a node that its authority has confirmed last.
    pub(super) fn tenure(&self, node: NodeId) -> Option<Tenure> {
        self.tenures[node.index()].borrow().clone()
    }

    /// Returns the tenures of a node whose server an authority names.
    pub(super) fn tenures(&self, node: NodeId) -> Tenures {
        Tenures(self.tenures[node.index()].subscribe())
    }
}

/// What has changed with the news of an authority.
pub(super) struct OwnerNews {
    /// The tenure, if another one was confirmed.
    pub(super) tenure: Option<Tenure>,
    /// Members of two authorities, if there were none before.
    pub(super) rivals: Option<Rivals>,
}

/// The worth of the votes of a lane's node.
pub(super) struct VotingRight {
    node: NodeId,
    clock: Clock,
    vetting: Arc<Vetting>,
    link: Link,
    status: Arc<StatusBoard>,
    eligibility: Eligibility,
    /// The authority that names the server, so that only the electorate knows what its votes are worth.
    named_by: Option<NamedBy>,
    /// Whether the node had no vote when this was last checked.
    has_no_vote: bool,
}

impl VotingRight {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        vetting: Arc<Vetting>,
        named_by: Option<NamedBy>,
        link: Link,
        status: Arc<StatusBoard>,
    ) -> Self {
        Self {
            node,
            clock,
            vetting,
            link,
            status,
            eligibility: Eligibility::ALWAYS,
            named_by,
            has_no_vote: false,
        }
    }

    /// Takes what a node has said on a new connection, and `refusal`, if the node would not do what
    /// every lock needs. `tenure` is the one in which an authority has named the server. Returns an error if the
    /// node has no vote until somebody changes something.
    pub(super) fn handle_connection(
        &mut self,
        statement: &Statement,
        refusal: Option<&NodeError>,
        tenure: Option<&Tenure>,
    ) -> Result<(), NodeError> {
        let (now, server) = (self.clock.now(), &statement.server);
        let identity = statement.identity();
        let mut electorate = self.vetting.electorate.lock();
        let admission = match tenure {
            Some(tenure) => electorate.handle_owner_connection(now, self.node, tenure, &identity),
            None => electorate.handle_connection(now, self.node, &identity),
        };
        drop(electorate);
        let unmet = admission.unmet;
        let outcome = self.in_words(admission.outcome, server, refusal);
        if outcome.is_ok() {
            self.warn(server, unmet);
        }
        self.apply(admission.withdrawal, outcome)?;
        let (now, eligibility) = (self.clock.now(), self.eligibility());
        let remaining = eligibility.remaining(now);
        if !remaining.is_zero() && !eligibility.is_unconfirmed(now) {
            log::warn!(
                node = %self.address(),
                remaining = %ShownTime(remaining),
                "the node has no vote yet: its server started, or was promoted, so recently that it may lack a lock"
            );
        }
        let info = match server {
            Server::Known(info) => Some(info.clone()),
            Server::None | Server::Withheld(_) => None,
        };
        let named = tenure.zip(self.named_by.as_ref());
        let owner = named.map(|(it, by)| by.authority.name_of_owner(&it.owner).into());
        self.status.connected(owner, info, unmet, eligibility);
        Ok(())
    }

    /// Takes what a node has said while it is connected. Returns an error if the node has no vote
    /// until somebody changes something.
    pub(super) fn handle_inspection(&mut self, statement: &Statement) -> Result<(), NodeError> {
        if statement.server.may_tell_later() {
            return Ok(());
        }
        if let Server::Known(info) = &statement.server {
            // Otherwise this process would look for lines at another node than those that know the name.
            self.status.introduced(info);
        }
        let before = self.eligibility;
        let now = self.clock.now();
        let identity = statement.identity();
        let mut electorate = self.vetting.electorate.lock();
        let admission = electorate.handle_inspection(now, self.node, &identity);
        drop(electorate);
        let outcome = self.in_words(admission.outcome, &statement.server, None);
        self.apply(admission.withdrawal, outcome)?;
        // Each report of an authority changes the eligibility, too.
        if admission.withdrawal.is_some() || (self.named_by.is_none() && self.eligibility != before)
        {
            log::warn!(
                node = %self.address(),
                remaining = %ShownTime(self.eligibility().remaining(self.clock.now())),
                "the server was promoted or replaced under its connection, and may lack a lock: the node has no \
                 vote, and its last votes are withdrawn"
            );
            self.status.withdrawn(self.eligibility());
        }
        Ok(())
    }

    /// Logs when the node gets its vote, and when its server is no longer confirmed. Returns when to call this again,
    /// if the node will get its vote by itself.
    pub(super) fn log_change(&mut self) -> Option<Instant> {
        let (now, eligibility) = (self.clock.now(), self.eligibility());
        let had_no_vote = std::mem::replace(&mut self.has_no_vote, !eligibility.covers(now));
        let is_unconfirmed = eligibility.is_unconfirmed(now);
        match (had_no_vote, self.has_no_vote) {
            (true, false) => {
                log::info!(node = %self.address(), "the node votes from now on");
            }
            (false, true) if is_unconfirmed => log::warn!(
                node = %self.address(),
                "the node has no vote until a majority of its sentinels, or of its cluster's nodes, names its server \
                 as the master to this client"
            ),
            _ => {}
        }
        let remaining = eligibility.remaining(now);
        (self.has_no_vote && !is_unconfirmed).then(|| Instant::now() + remaining.min(LONGEST_SLEEP))
    }

    /// Returns what the node's votes are worth in answers that come now.
    pub(super) fn eligibility(&self) -> Eligibility {
        if self.named_by.is_some() {
            return self.vetting.electorate.lock().eligibility(self.node);
        }
        self.eligibility
    }

    /// Changes what the node's votes are worth, and informs the leases of a withdrawal.
    fn apply(
        &mut self,
        withdrawal: Option<Withdrawal>,
        outcome: Result<Eligibility, NodeError>,
    ) -> Result<(), NodeError> {
        // The answers that come from now on must carry the new eligibility before any lease hears of
        // the withdrawal.
        if let Some(withdrawal) = withdrawal {
            self.eligibility = withdrawal.eligibility;
            self.link.withdrawn(withdrawal);
        }
        self.eligibility = outcome?;
        Ok(())
    }

    /// Says why the node may not vote, if it may not. `refusal` is why it would not do what every lock needs, if that
    /// was found out.
    fn in_words(
        &self,
        outcome: Result<Eligibility, Exclusion>,
        server: &Server,
        refusal: Option<&NodeError>,
    ) -> Result<Eligibility, NodeError> {
        let is_wrong_node = matches!(
            outcome,
            Err(Exclusion::SameServer { .. }
                | Exclusion::SharedServer { .. }
                | Exclusion::Replica
                | Exclusion::ClusterMaster)
        );
        match refusal {
            // A mistake in the list of nodes comes before one in their configuration.
            Some(refusal) if !is_wrong_node => Err(refusal.clone()),
            _ => outcome.map_err(|exclusion| self.explain(exclusion, server)),
        }
    }

    fn explain(&self, exclusion: Exclusion, server: &Server) -> NodeError {
        if let (Exclusion::Replica, Some(NamedBy { kind, .. })) = (exclusion, &self.named_by) {
            let members = kind.members();
            let text = format!("the server became a replica, and its {members} name no other yet");
            return NodeError::Unreachable(text.into());
        }
        let text = match (exclusion, server) {
            (Exclusion::SameServer { other }, _) => {
                let address = Arc::clone(self.vetting.address(other));
                return NodeError::SameServer { address };
            }
            (Exclusion::SharedServer { other }, _) => {
                let address = Arc::clone(self.vetting.address(other));
                let owner = self.vetting.tenure(self.node);
                let named = owner.zip(self.named_by.as_ref());
                let server = named.map(|(it, by)| by.authority.name_of_owner(&it.owner));
                let server = server.unwrap_or_default().into();
                return NodeError::SharedServer { address, server };
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
                 redis+cluster:// for the cluster as a whole"
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
    fn warn(&self, server: &Server, unmet: Checks) {
        let node = self.address();
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
        let waits = self.vetting.durability == Durability::Volatile;
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
        if self.vetting.durability == Durability::FsyncAlways && !info.appends_to_file {
            log::warn!(
                %node,
                "the node is said to be durable, but appendonly is off: a restart forgets locks"
            );
        }
    }

    fn address(&self) -> &str {
        self.vetting.address(self.node)
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

    /// The only node, with a quarantine of 10 s.
    fn right() -> VotingRight {
        let max_ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let quarantine = Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO));
        let vetting = Vetting::new(Durability::Volatile, quarantine, false, ["a".into()]);
        let node = NodeId::new(0).unwrap();
        let link = Link::to_nobody(node);
        VotingRight::new(
            node,
            Clock::tokio(),
            Arc::new(vetting),
            None,
            link.clone(),
            Arc::new(StatusBoard::new(NodeError::Silent, link)),
        )
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

    #[test]
    fn a_wrong_node_comes_before_its_missing_rights_and_those_before_what_it_does_not_say() {
        let refusal = NodeError::Misconfigured("may not SET".into());
        let mut right = right();
        let mut connect = |server| {
            let statement = Statement {
                asked_at: Timestamp::ZERO,
                server,
                history_age: None,
            };
            right.handle_connection(&statement, Some(&refusal), None)
        };
        let replica = ServerInfo {
            role: Role::ReplicaOf("m:6379".into()),
            ..info(b'x')
        };
        assert_ne!(connect(Server::Known(replica)), Err(refusal.clone()));
        for server in [Server::None, Server::Known(info(b'x')), withheld()] {
            assert_eq!(connect(server), Err(refusal.clone()));
        }
    }
}
