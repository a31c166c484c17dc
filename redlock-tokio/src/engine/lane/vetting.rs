//! Whether a node may vote, and from when on.

use std::{sync::Arc, time::Duration};

use redlock_core::{
    Eligibility, NodeId, Quarantine, RunId, Sighting, Timestamp, Voter, Withdrawal,
};

use crate::{
    NodeError,
    node::{Server, ServerInfo},
    sync::{Mutex, MutexGuard},
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
        if outcome.is_err() && visit.occasion == Occasion::Inspection && withdrawal.is_none() {
            // Another server than before, which must not vote: it may have done so since the last look.
            withdrawal = seats[node.index()].voter.handle_demotion(now);
        }
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
                if visit.occasion == Occasion::Connection {
                    let node = &seat.address;
                    tracing::warn!(%node, %error, "not vetted: it does not answer INFO");
                }
                // What it does not tell is taken for harmless. What it has told before stands.
                return Ok(seat.voter.eligibility());
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

    fn lock(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock()
    }
}

fn misconfigured(text: String) -> NodeError {
    NodeError::Misconfigured(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_core::{Drift, Quarantine, Ttl};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_secs(1000 + seconds))
    }

    /// Two nodes, with a quarantine of 10 s.
    fn vetting(allow_unvetted: bool) -> Vetting {
        let max_ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let quarantine = Quarantine::new(max_ttl, Drift::new(0, Duration::ZERO));
        let rules = Rules {
            restarts: RestartRule::Quarantined(quarantine),
            allow_unvetted,
        };
        Vetting::new(rules, ["a".into(), "b".into()])
    }

    fn info(letter: u8, uptime: u64) -> ServerInfo {
        ServerInfo::new(RunId::new([letter; 40]), Duration::from_secs(uptime))
    }

    fn withheld() -> Server {
        Server::Withheld(NodeError::Refused {
            code: "NOPERM".into(),
            message: "".into(),
        })
    }

    fn visit(
        vetting: &Vetting,
        node: usize,
        occasion: Occasion,
        seconds: u64,
        server: &Server,
    ) -> Judgement {
        let visit = Visit {
            occasion,
            asked_at: at(seconds),
            server,
            history_age: None,
            refusal: None,
        };
        vetting.judge(NodeId::new(node).unwrap(), at(seconds), &visit)
    }

    #[test]
    fn a_server_that_says_no_more_what_it_is_stays_in_quarantine() {
        let vetting = vetting(true);
        let known = |letter, uptime| Server::Known(info(letter, uptime));
        visit(&vetting, 0, Occasion::Connection, 0, &known(b'x', 500));
        let restarted = visit(&vetting, 0, Occasion::Connection, 20, &known(b'y', 1));
        assert_eq!(restarted.outcome, Ok(Eligibility::since(at(30))));
        let silent = visit(&vetting, 0, Occasion::Connection, 21, &withheld());
        assert_eq!(silent.outcome, Ok(Eligibility::since(at(30))));
    }

    #[test]
    fn a_replica_that_says_no_more_what_it_is_stays_in_quarantine() {
        let vetting = vetting(true);
        visit(
            &vetting,
            0,
            Occasion::Connection,
            0,
            &Server::Known(info(b'x', 500)),
        );
        let mut replica = info(b'x', 510);
        replica.replica_of = Some("m".into());
        let refused = visit(
            &vetting,
            0,
            Occasion::Inspection,
            10,
            &Server::Known(replica),
        );
        assert!(refused.outcome.is_err());
        let silent = visit(&vetting, 0, Occasion::Connection, 11, &withheld());
        assert!(!silent.outcome.unwrap().covers(at(11)));
    }

    #[test]
    fn a_server_that_is_refused_under_a_connection_has_its_last_votes_withdrawn() {
        let known = |letter| Server::Known(info(letter, 500));
        for (letter, is_refused) in [(b'z', false), (b'x', true)] {
            let vetting = vetting(false);
            visit(&vetting, 0, Occasion::Connection, 0, &known(b'x'));
            visit(&vetting, 1, Occasion::Connection, 0, &known(b'y'));
            let seen = visit(&vetting, 1, Occasion::Inspection, 1, &known(letter));
            assert_eq!(seen.outcome.is_err(), is_refused, "the server of node 0");
            assert!(
                seen.withdrawal.is_some(),
                "it has voted since the last look"
            );
        }
        let vetting = vetting(false);
        visit(&vetting, 0, Occasion::Connection, 0, &known(b'x'));
        let seen = visit(&vetting, 0, Occasion::Inspection, 1, &withheld());
        assert!(seen.outcome.is_err() && seen.withdrawal.is_some());
    }
}
