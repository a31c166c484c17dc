//! Whether a node may vote, and from when on.

use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use redlock_core::{
    Eligibility, NodeId, Quarantine, RunId, Sighting, Timestamp, Voter, Withdrawal,
};

use crate::{
    NodeError,
    node::{Server, ServerInfo},
};

/// What nodes are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// For how long a node has no vote after it came up.
    pub(crate) restarts: RestartRule,
    /// Whether a node that does not say what it is may vote.
    pub(crate) allow_unvetted: bool,
}

/// What a restarted node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartRule {
    /// Wait until every lock that it may have forgotten is over.
    Quarantined(Quarantine),
    /// Vote, because it forgets nothing, unless it is another server.
    Durable(Quarantine),
    /// Vote all the same.
    Trusted(Quarantine),
}

/// What a node has said of itself, and when.
pub(crate) struct Visit<'a> {
    pub(crate) occasion: Occasion,
    /// When the node was asked, or before.
    pub(crate) asked_at: Timestamp,
    pub(crate) server: &'a Server,
    /// Why the node would not do what every lock needs, if that was found out.
    pub(crate) refusal: Option<NodeError>,
    /// For how long its history exists at least, if that was found out.
    pub(crate) history_age: Option<Duration>,
}

/// Why a node was asked what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// It was connected to.
    Connection,
    /// A second has passed.
    Inspection,
}

/// What comes of it.
pub(crate) struct Judgement {
    /// What the node's votes are worth, or why it may not vote at all.
    pub(crate) outcome: Result<Eligibility, NodeError>,
    /// What is to be told to all leases.
    pub(crate) withdrawal: Option<Withdrawal>,
}

/// The nodes of one lock service, as they were last seen.
#[derive(Debug)]
pub(crate) struct Vetting {
    rules: Rules,
    seats: Mutex<Vec<Seat>>,
}

#[derive(Debug)]
struct Seat {
    address: Arc<str>,
    /// Which server sits here, whether or not it may vote.
    run_id: Option<RunId>,
    voter: Voter,
}

impl Vetting {
    /// Prepares to vet the nodes with these addresses.
    pub(crate) fn new(rules: Rules, addresses: impl IntoIterator<Item = Arc<str>>) -> Self {
        let seat = |address| Seat {
            address,
            run_id: None,
            voter: match rules.restarts {
                RestartRule::Quarantined(quarantine) if rules.allow_unvetted => {
                    Voter::new(quarantine).allowing_unvetted()
                }
                RestartRule::Quarantined(quarantine) => Voter::new(quarantine),
                RestartRule::Durable(quarantine) => Voter::durable(quarantine),
                RestartRule::Trusted(quarantine) => Voter::trusted(quarantine),
            },
        };
        Self {
            rules,
            seats: Mutex::new(addresses.into_iter().map(seat).collect()),
        }
    }

    /// Returns whether it must be found out for how long the server's history exists.
    pub(crate) fn needs_history_age(&self, node: NodeId, server: &Server) -> bool {
        let Server::Known(ServerInfo {
            replication: Some(replication),
            replica_of: None,
            ..
        }) = server
        else {
            return false;
        };
        self.lock()[node.index()]
            .voter
            .needs_history_age(*replication)
    }

    /// Decides on a node that was just connected to, or that is connected and was asked again.
    pub(crate) fn judge(&self, node: NodeId, now: Timestamp, visit: &Visit<'_>) -> Judgement {
        // Locked throughout, so that of two addresses of one server one is always found out.
        let mut seats = self.lock();
        let mut withdrawal = None;
        let outcome = self.admit(&mut seats, node, now, visit, &mut withdrawal);
        Judgement {
            outcome,
            withdrawal,
        }
    }

    fn admit(
        &self,
        seats: &mut [Seat],
        node: NodeId,
        now: Timestamp,
        visit: &Visit<'_>,
        withdrawal: &mut Option<Withdrawal>,
    ) -> Result<Eligibility, NodeError> {
        let seat = &mut seats[node.index()];
        // The server that sat here before may have gone.
        seat.run_id = None;
        let info = match (visit.server, &visit.refusal) {
            (Server::Known(info), _) => info,
            (_, Some(refusal)) => return Err(refusal.clone()),
            (Server::None, None) => return Ok(Eligibility::ALWAYS),
            (Server::Withheld(error), None) if self.rules.allow_unvetted => {
                tracing::warn!(node = %seat.address, %error, "not vetted: it does not answer INFO");
                return Ok(Eligibility::ALWAYS);
            }
            (Server::Withheld(error), None) => {
                return Err(misconfigured(format!(
                    "it does not say what it is ({error}): grant +info, or build with \
                     allow_unvetted_nodes"
                )));
            }
        };
        if info.replica_of.is_some() {
            *withdrawal = seat.voter.handle_demotion(now);
        }
        // Before all else: one server under two addresses never works, whatever it is.
        if let Some(other) = seats.iter().find(|it| it.run_id == Some(info.run_id)) {
            let address = Arc::clone(&other.address);
            return Err(NodeError::SameServer { address });
        }
        let seat = &mut seats[node.index()];
        seat.run_id = Some(info.run_id);
        if let Some(master) = &info.replica_of {
            return Err(misconfigured(format!(
                "a replica of {master}, which may lag behind it: only masters vote"
            )));
        }
        if info.in_cluster {
            return Err(misconfigured(
                "a node of a cluster, which replicates and moves keys: use masters of their own"
                    .into(),
            ));
        }
        if let Some(refusal) = &visit.refusal {
            return Err(refusal.clone());
        }
        if info.replication.is_none() && seat.voter.needs_vetting() {
            return Err(misconfigured(
                "INFO does not tell master_replid2, which shows whether it was promoted a moment ago \
                 and may lack locks: use a server that tells it, or build with allow_unvetted_nodes"
                    .into(),
            ));
        }
        let sighting = Sighting {
            asked_at: visit.asked_at,
            run_id: info.run_id,
            uptime: Some(info.uptime),
            replication: info.replication,
            history_age: visit.history_age,
        };
        *withdrawal = match visit.occasion {
            Occasion::Connection => {
                self.warn(&seat.address, info);
                seat.voter.handle_connection(now, &sighting)
            }
            Occasion::Inspection => seat.voter.handle_sighting(now, &sighting),
        };
        Ok(seat.voter.eligibility())
    }

    /// Tells of what does not keep a node from voting, but may make it forget.
    fn warn(&self, address: &str, info: &ServerInfo) {
        if let Some(policy) = &info.eviction
            && policy != "noeviction"
        {
            tracing::warn!(
                node = address,
                policy,
                "evicts keys when memory is short, locks first if they have the least time left: \
                 set maxmemory-policy noeviction"
            );
        }
        if matches!(self.rules.restarts, RestartRule::Durable(_)) && !info.appends_to_file {
            tracing::warn!(
                node = address,
                "is said to be durable, but appendonly is off: a restart forgets locks"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Seat>> {
        // No code panics while it holds the lock.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn misconfigured(text: String) -> NodeError {
    NodeError::Misconfigured(text.into())
}
