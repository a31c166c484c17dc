//! Starts the background work of a [`Redlock`], and judges how its nodes received it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use redlock_core::{Drift, OwnerRule, Quarantine, Quorum, Ttl};
use tokio::{runtime::Handle, sync::oneshot};

use super::{BuildError, RedlockBuilder};
use crate::{
    Durability, NodeError, NodeReport, NodeReports, Objection, Redlock,
    client_name::ClientName,
    engine::{
        lane::{Discovery, Lane, LaneHandle, LaneLimits, LaneNode, Vetting},
        requests::{Client, Engine, Link},
        timers::Timers,
        warning::Outage,
    },
    log,
    node::{AuthorityKind, Member, Node},
    observer::Observers,
    sync::Mutex,
};

impl RedlockBuilder {
    /// Spawns a lane for each node, a watch for each authority, and the timers. Everything that does not need the nodes
    /// was checked before.
    pub(super) fn launch(
        mut self,
        quorum: Quorum,
        max_ttl: Ttl,
        nodes: Vec<Arc<dyn Node>>,
        runtime: &Handle,
    ) -> (Redlock, Vec<FirstOutcome>) {
        self.clock = self.clock.on(runtime);
        let limits = LaneLimits {
            answer: self.node_timeout,
            connect: self.connect_timeout,
        };
        let addresses = nodes.iter().map(|node| node.address().into());
        let vetting = Arc::new(Vetting::new(
            self.durability,
            Quarantine::new(max_ttl, self.common.drift),
            self.allow_unvetted,
            addresses,
        ));
        // All clients must have the same allowance, whatever the drift of their locks is.
        let rule = OwnerRule::new(max_ttl, Drift::default(), self.confirmation_window);
        let rule = match self.durability {
            Durability::Volatile | Durability::FsyncAlways => rule,
            Durability::LosslessFailovers | Durability::AssumedForTests => rule.without_settling(),
        };
        let named = quorum.all().iter().zip(&nodes);
        let mut discoveries = Discovery::start_all(runtime, &self.clock, &vetting, rule, named);
        let window = (!discoveries.is_empty()).then_some(self.confirmation_window);
        let observers = Observers::new(self.observers.clone());
        let client_name = self.client_name.clone().unwrap_or(ClientName::NONE);
        let member = Member(self.random.u128().unwrap_or_default() as u64);
        let (clock, random, prefix) = (
            self.clock.clone(),
            self.random.clone(),
            &self.prefix.clone(),
        );
        let mut running = Vec::with_capacity(nodes.len());
        let engine = self.engine(quorum);
        let client = Arc::new_cyclic(|client| {
            let mut lanes = Vec::with_capacity(nodes.len());
            for (id, node) in quorum.all().iter().zip(nodes) {
                let (handle, lane) = Lane::new(
                    LaneNode {
                        id,
                        node,
                        discovery: discoveries.remove(&id),
                        prefix: prefix.clone(),
                    },
                    clock.clone(),
                    random.clone(),
                    limits,
                    Arc::clone(&vetting),
                    Link::new(client, &engine, id, member, &client_name),
                    observers.clone(),
                );
                lanes.push(handle);
                running.push(lane);
            }
            let me = (member, client_name);
            self.client(quorum, max_ttl, window, (lanes, engine), me)
        });
        let timers = client.timers.run(Arc::downgrade(&client), clock);
        runtime.spawn(timers);
        let connecting = running.into_iter().map(|lane| {
            let (connected, outcome) = oneshot::channel();
            runtime.spawn(lane.run(connected));
            outcome
        });
        let connecting = connecting.collect();
        (Redlock::new(client), connecting)
    }

    /// Makes the part of the client that its lanes know.
    pub(crate) fn engine(&self, quorum: Quorum) -> Arc<Mutex<Engine>> {
        let engine = Engine::new(self.max_waiters_total, quorum.all(), &self.random);
        Arc::new(Mutex::new(engine))
    }

    /// Makes the part that all handles share, over these lanes. `window` is set if an authority names the master of a
    /// node.
    pub(crate) fn client(
        self,
        quorum: Quorum,
        max_ttl: Ttl,
        window: Option<Duration>,
        (lanes, engine): (Vec<LaneHandle>, Arc<Mutex<Engine>>),
        (member, client_name): (Member, ClientName),
    ) -> Client {
        Client {
            quorum,
            lanes: lanes.into(),
            engine,
            timers: Timers::new(),
            member,
            client_name,
            clock: self.clock,
            random: self.random,
            prefix: self.prefix,
            defaults: self.defaults,
            default_terms: OnceLock::new(),
            common: self.common,
            max_ttl,
            node_timeout: self.node_timeout,
            window,
            outage: Outage::default(),
            shut_down: false.into(),
            wall_clock: self.wall_clock,
            logs_keys: self.logs_keys,
            observers: Observers::new(self.observers),
            observed: 0.into(),
        }
    }
}

/// Whether the first attempt of a lane to connect has succeeded.
pub(super) type FirstOutcome = oneshot::Receiver<Result<(), NodeError>>;

/// Waits until each lane is connected or has failed to connect. Returns the nodes that refuse this client.
pub(super) async fn refusals(
    redlock: &Redlock,
    connecting: Vec<FirstOutcome>,
) -> Vec<(Arc<str>, NodeError)> {
    let mut refusals = Vec::new();
    for (lane, outcome) in redlock.client().lanes.iter().zip(connecting) {
        // A lane that ends before it sends its outcome belongs to a runtime that is shutting down.
        if let Ok(Err(error)) = outcome.await
            && error.is_refusal()
        {
            refusals.push((Arc::clone(&lane.address), error));
        }
    }
    refusals
}

/// Says what one sentinel group alone means.
pub(super) fn warn_of_single_group(nodes: &[Arc<dyn Node>]) {
    if let [node] = nodes
        && let Some(named_by) = node.named_by()
        && named_by.kind == AuthorityKind::Sentinels
    {
        log::warn!(
            node = %node.address(),
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
            nodes,
            tolerated_failures = quorum.tolerated_failures(),
            "an even number of nodes tolerates no more failures than one node fewer: use an odd number, at least 3"
        );
    }
}

/// Judges the nodes that refuse this client. A minority of them may be mended while the others serve. One server
/// under two addresses is always an error, and so are two slots of one server.
pub(super) fn refuse_to_start(
    redlock: &Redlock,
    refusals: Vec<(Arc<str>, NodeError)>,
) -> Result<(), BuildError> {
    let lanes = &redlock.client().lanes;
    for (address, error) in &refusals {
        // In the order in which the nodes were given, not in which they were connected to.
        let in_order = |other: &Arc<str>| {
            let mut pair = [Arc::clone(address), Arc::clone(other)];
            pair.sort_by_key(|name| lanes.iter().position(|lane| lane.address == *name));
            pair
        };
        match error {
            NodeError::SameServer { address: other } => {
                let [first, second] = in_order(other);
                return Err(BuildError::SameServer { first, second });
            }
            NodeError::SharedServer {
                address: other,
                server,
            } => {
                let [first, second] = in_order(other);
                let server = Arc::clone(server);
                return Err(BuildError::SharedServer {
                    first,
                    second,
                    server,
                });
            }
            _ => {}
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
