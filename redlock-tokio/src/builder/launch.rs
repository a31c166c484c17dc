//! Starts the background work of a [`Redlock`], and judges how its nodes received it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use redlock_core::{Drift, OwnerRule, Quorum, Ttl};
use tokio::{runtime::Handle, sync::oneshot};

use super::BuildError;
use crate::{
    Clock, Durability, LockOptions, NodeError, NodeReport, NodeReports, Objection, Redlock,
    engine::{
        lane::{
            Discovery, Lane, LaneLimits, LaneNode,
            vetting::{Vetting, VettingRules},
        },
        lease_cell::{Client, listeners},
        queue::Queue,
        slot_table::SlotTable,
        timers::Timers,
        turn_table::TurnTable,
        wall_clock::WallClock,
        warning::Outage,
    },
    key::Prefix,
    log,
    node::{AuthorityKind, Node},
    options::CommonSettings,
    random::Random,
};

/// The parts of a [`Redlock`], after all checks that do not ask the nodes.
pub(super) struct Plan {
    pub(super) quorum: Quorum,
    pub(super) nodes: Vec<Arc<dyn Node>>,
    pub(super) limits: LaneLimits,
    pub(super) rules: VettingRules,
    pub(super) max_ttl: Ttl,
    /// How long a confirmation of a master counts.
    pub(super) window: Duration,
    pub(super) max_waiters_total: usize,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) wall_clock: WallClock,
    pub(super) prefix: Prefix,
    pub(super) defaults: LockOptions,
    pub(super) common: CommonSettings,
    pub(super) logs_keys: bool,
}

impl Plan {
    /// Spawns a lane for each node, a watch for each authority, and the timers.
    pub(super) fn launch(self, runtime: &Handle) -> (Redlock, Connecting) {
        let addresses = self.nodes.iter().map(|node| node.address().into());
        let vetting = Arc::new(Vetting::new(self.rules, addresses));
        // All clients must have the same allowance, whatever the drift of their locks is.
        let rule = OwnerRule::new(self.max_ttl, Drift::default(), self.window);
        let rule = match self.rules.durability {
            Durability::Volatile | Durability::FsyncAlways => rule,
            Durability::LosslessFailovers | Durability::AssumedForTests => rule.without_settling(),
        };
        let nodes = self.quorum.all().iter().zip(&self.nodes);
        let mut discoveries = Discovery::start_all(runtime, &self.clock, &vetting, rule, nodes);
        let is_named = !discoveries.is_empty();
        let queue = Arc::new(Queue::new(self.max_waiters_total, &self.random));
        let timers = Timers::new(self.clock.clone());
        let mut lanes = Vec::with_capacity(self.nodes.len());
        let mut connecting = Vec::with_capacity(self.nodes.len());
        for (id, node) in self.quorum.all().iter().zip(self.nodes) {
            let listeners = listeners(id, &queue, &timers);
            let discovery = discoveries.remove(&id);
            let (handle, lane) = Lane::new(
                LaneNode {
                    id,
                    node,
                    discovery,
                    prefix: self.prefix.clone(),
                },
                self.clock.clone(),
                self.random.clone(),
                self.limits,
                Arc::clone(&vetting),
                listeners,
            );
            let (connected, outcome) = oneshot::channel();
            runtime.spawn(lane.run(connected));
            connecting.push(FirstConnection {
                address: Arc::clone(handle.address()),
                outcome,
            });
            lanes.push(handle);
        }
        runtime.spawn(Arc::clone(&timers).run());
        let redlock = Redlock::new(Client {
            quorum: self.quorum,
            lanes: lanes.into(),
            timers,
            queue,
            turns: TurnTable::new(&self.random),
            slots: SlotTable::new(&self.random),
            clock: self.clock,
            random: self.random,
            requests: 0.into(),
            prefix: self.prefix,
            defaults: self.defaults,
            default_terms: OnceLock::new(),
            common: self.common,
            max_ttl: (self.rules.durability != Durability::AssumedForTests).then_some(self.max_ttl),
            node_timeout: self.limits.answer,
            window: is_named.then_some(self.window),
            outage: Outage::default(),
            shut_down: false.into(),
            wall_clock: self.wall_clock,
            undeliverable: 0.into(),
            logs_keys: self.logs_keys,
        });
        (redlock, Connecting(connecting))
    }
}

/// The first connections of all lanes.
pub(super) struct Connecting(Vec<FirstConnection>);

struct FirstConnection {
    address: Arc<str>,
    outcome: oneshot::Receiver<Result<(), NodeError>>,
}

impl Connecting {
    /// Waits until each lane is connected or has failed to connect. Returns the nodes that refuse this client.
    pub(super) async fn refusals(self) -> Vec<(Arc<str>, NodeError)> {
        let mut refusals = Vec::new();
        for first in self.0 {
            // A lane that ends before it sends its outcome belongs to a runtime that is shutting down.
            if let Ok(Err(error)) = first.outcome.await
                && error.is_refusal()
            {
                refusals.push((first.address, error));
            }
        }
        refusals
    }
}

/// Refuses two nodes with one address: one server would vote twice.
pub(super) fn refuse_duplicates(nodes: &[Arc<dyn Node>]) -> Result<(), BuildError> {
    for (second, node) in nodes.iter().enumerate() {
        let same = |other: &Arc<dyn Node>| other.address() == node.address();
        if let Some(first) = nodes[..second].iter().position(same) {
            return Err(BuildError::DuplicateNode {
                address: node.address().into(),
                first: first + 1,
                second: second + 1,
            });
        }
    }
    Ok(())
}

/// Says what one sentinel group alone means.
pub(super) fn warn_of_single_group(nodes: &[Arc<dyn Node>]) {
    if let [node] = nodes
        && let Some(named_by) = node.named_by()
        && named_by.kind == AuthorityKind::Sentinels
    {
        log::warn!(
            target: "redlock",
            node = node.address(),
            "one sentinel group has one vote: a failover loses all locks, and none can be acquired until max_ttl and \
             confirmation_window are over; no lock is given to two holders; three groups or more survive the \
             failover of one"
        );
    }
}

/// Warns of a node that adds a cost and a risk, but tolerates no further failure.
pub(super) fn warn_of_even_number(quorum: Quorum) {
    let nodes = quorum.nodes();
    if nodes.is_multiple_of(2) {
        log::warn!(
            target: "redlock",
            nodes,
            tolerated_failures = quorum.tolerated_failures(),
            "an even number of nodes tolerates no more failures than one node fewer: use an odd number, at least 3"
        );
    }
}

/// Judges the nodes that refuse this client. A minority of them may be mended while the others serve. One server
/// under two addresses is always an error.
pub(super) fn refuse_to_start(
    redlock: &Redlock,
    refusals: Vec<(Arc<str>, NodeError)>,
) -> Result<(), BuildError> {
    let addresses: Vec<_> = redlock
        .nodes()
        .into_iter()
        .map(|node| node.address)
        .collect();
    for (address, error) in &refusals {
        if let NodeError::SameServer { address: other } = error {
            // In the order in which the nodes were given, not in which they were connected to.
            let mut pair = [Arc::clone(address), Arc::clone(other)];
            pair.sort_by_key(|name| addresses.iter().position(|address| address == name));
            let [first, second] = pair;
            return Err(BuildError::SameServer { first, second });
        }
    }
    let quorum = redlock.client().quorum;
    if refusals.len() <= quorum.tolerated_failures() {
        return Ok(());
    }
    let report = |(address, error)| NodeReport {
        address,
        objection: Objection::Failed(error),
    };
    Err(BuildError::Refused {
        votes_needed: quorum.votes(),
        nodes_total: quorum.nodes(),
        nodes: NodeReports::new(refusals.into_iter().map(report).collect()),
    })
}
