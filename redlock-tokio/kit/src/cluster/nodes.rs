use std::{ops::RangeInclusive, time::Duration};

use super::{Cluster, builder::ClusterBuilder, line::Line};
use crate::{
    commands::Commands,
    error::{SpawnError, TopologyError},
    launch::Mode,
    peer::{Peer, elect, sources},
    waiting::wait_until,
};

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The node timeout until the nodes know each other. An introduction that takes longer fails. On a busy machine it
/// takes seconds, and with a short timeout there is always a node that seems to be down.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The statements of the processes about each other.
impl Cluster {
    /// Starts the processes, which do not know each other yet.
    pub(super) fn spawn_nodes(builder: &ClusterBuilder) -> Result<Self, SpawnError> {
        let count = builder.shards * (1 + builder.replicas);
        let sources = sources(count);
        let spawn = |number| {
            let mode = |port, bus| mode(builder, port, bus);
            Peer::spawn(number, &sources, true, mode)
        };
        Ok(Self {
            peers: (0..count).map(spawn).collect::<Result<_, _>>()?,
            shards: builder.shards,
            replicas: builder.replicas,
            password: builder.password.clone(),
        })
    }

    /// Sets how long a node must be silent before another one finds it down. A node that restarts has the timeout of
    /// its arguments again.
    fn set_timeout(&self, timeout: Duration) -> Result<(), String> {
        let timeout = timeout.as_millis().to_string();
        let order = ["CONFIG", "SET", "cluster-node-timeout", &timeout];
        (0..self.peers.len()).try_for_each(|it| self.commands(it).ask(&order))
    }

    /// Makes a cluster of the processes, with this node timeout.
    pub(super) fn join(&self, node_timeout: Duration) -> Result<(), TopologyError> {
        self.set_timeout(INTRODUCTION_TIMEOUT.max(node_timeout))?;
        for number in 0..self.peers.len() {
            // Nodes with the same epoch would have to agree first on who changes it.
            let epoch = (number + 1).to_string();
            let _: () = self
                .commands(number)
                .ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        }
        for shard in 0..self.shards {
            let words = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter();
            let slots = self.first_slots(shard).map(|it| it.to_string());
            let command: Vec<_> = words.chain(slots).collect();
            let _: () = self.commands(shard).ask(&command)?;
        }
        let mut ids = Vec::new();
        wait_until("the nodes know each other", || {
            ids = self.ids()?;
            self.introduce()?;
            let mut numbers = 0..self.peers.len();
            numbers.try_for_each(|it| self.check_lines(it).map(drop))
        })?;
        self.set_timeout(node_timeout)?;
        for replica in self.shards..self.peers.len() {
            let master = &ids[self.shard_of(replica)];
            let _: () = self
                .commands(replica)
                .ask(&["CLUSTER", "REPLICATE", master])?;
        }
        Ok(())
    }

    /// Introduces all nodes to each other that do not know each other. Otherwise they would wait for gossip, which is
    /// slow with a long node timeout.
    fn introduce(&self) -> Result<(), String> {
        let numbers = 0..self.peers.len();
        let lines: Vec<_> = numbers.map(|it| self.lines(it)).collect::<Result<_, _>>()?;
        let knows = |one: usize, other: usize| {
            let port = self.peers[other].address().port();
            lines[one].iter().any(|it| it.port == port)
        };
        for one in 0..self.peers.len() {
            let strangers = (0..one).filter(|other| !knows(one, *other) || !knows(*other, one));
            for other in strangers {
                self.meet(one, other)?;
            }
        }
        Ok(())
    }

    fn meet(&self, one: usize, other: usize) -> Result<(), String> {
        let peer = &self.peers[other];
        let [port, bus] = [peer.address(), peer.bus_address()].map(|it| it.port().to_string());
        let order = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
        self.commands(one).ask(&order)
    }

    /// Returns the slots that a shard has at the start.
    fn first_slots(&self, shard: usize) -> RangeInclusive<u16> {
        let bound = |shard: usize| usize::from(SLOTS) * shard / self.shards;
        let bound = |shard| u16::try_from(bound(shard)).expect("there are fewer slots");
        bound(shard)..=bound(shard + 1) - 1
    }

    fn ids(&self) -> Result<Vec<String>, String> {
        let id = |number| self.commands(number).ask(&["CLUSTER", "MYID"]);
        (0..self.peers.len()).map(id).collect()
    }

    /// Returns an error that says why the nodes do not agree yet.
    pub(super) fn settled(&self) -> Result<(), String> {
        let mut owners = None;
        for number in 0..self.peers.len() {
            let info: String = self.commands(number).ask(&["CLUSTER", "INFO"])?;
            if !info.contains("cluster_state:ok") {
                return Err(format!("node {number} has not the state \"ok\""));
            }
            let mut seen: Vec<_> = self
                .check_lines(number)?
                .into_iter()
                .map(|it| (it.port, it.is_master(), it.slots))
                .collect();
            seen.sort_by_key(|(port, ..)| *port);
            if *owners.get_or_insert_with(|| seen.clone()) != seen {
                return Err(format!("node {number} names other owners than node 0"));
            }
        }
        let owners = owners.unwrap_or_default();
        let is_master = |number: usize| {
            let port = self.peers[number].address().port();
            owners.iter().any(|it| it.0 == port && it.1)
        };
        for number in 0..self.peers.len() {
            self.check_role(number, is_master(number))?;
        }
        Ok(())
    }

    /// Returns what a node says about all nodes, if it says that all are well.
    fn check_lines(&self, number: usize) -> Result<Vec<Line>, String> {
        let lines = self.lines(number)?;
        if lines.len() != self.peers.len() {
            return Err(format!("node {number} knows {} nodes", lines.len()));
        }
        let trouble = lines.iter().find_map(|it| Some((it.port, it.trouble()?)));
        match trouble {
            None => Ok(lines),
            Some((port, trouble)) => Err(format!(
                "node {number} says of node {:?}: {trouble}",
                self.at(port)
            )),
        }
    }

    /// Checks that a node is a master, or a replica with its master's data.
    pub(super) fn check_role(&self, number: usize, is_master: bool) -> Result<(), String> {
        let info: String = self.commands(number).ask(&["INFO", "replication"])?;
        let expected = if is_master {
            "role:master"
        } else {
            "master_link_status:up"
        };
        if info.lines().any(|line| line.trim() == expected) {
            Ok(())
        } else {
            Err(format!("node {number} has not {expected}"))
        }
    }

    /// Returns the node that a majority of all nodes chooses. Nodes that do not answer count as part of the
    /// whole.
    pub(super) fn elect(&self, choice: impl Fn(&[Line]) -> Option<u16>) -> Option<usize> {
        let vote = |number| choice(&self.lines(number).ok()?);
        let votes: Vec<_> = (0..self.peers.len()).map(vote).collect();
        elect(&self.peers, &votes)
    }

    /// Returns what the first node that answers says about all nodes.
    pub(super) fn any_lines(&self) -> Result<Vec<Line>, String> {
        let mut last = Err("there are no nodes".into());
        for number in 0..self.peers.len() {
            last = self.lines(number);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Returns the shard of the node that a line is about.
    pub(super) fn shard_of_line(&self, line: &Line) -> Option<usize> {
        self.at(line.port).map(|it| self.shard_of(it))
    }

    /// Returns what a node says about all nodes.
    pub(super) fn lines(&self, number: usize) -> Result<Vec<Line>, String> {
        let answer: String = self.commands(number).ask(&["CLUSTER", "NODES"])?;
        Line::read_all(&answer)
    }

    pub(super) fn commands(&self, number: usize) -> Commands<'_> {
        self.peers[number].commands(self.password.as_deref())
    }

    /// Returns the number of the node that announces this port.
    pub(super) fn at(&self, port: u16) -> Option<usize> {
        let mut peers = self.peers.iter();
        peers.position(|it| it.address().port() == port)
    }
}

/// Returns the arguments of a node that announces these ports.
fn mode(builder: &ClusterBuilder, port: u16, bus: Option<u16>) -> Mode {
    let bus = bus.expect("a node of a cluster has a bus");
    let timeout = builder.node_timeout.as_millis();
    let coverage = if builder.full_coverage { "yes" } else { "no" };
    // Replicas must not move to another shard, and must not find their data too old for a promotion.
    let arguments = format!(
        "--cluster-enabled yes --cluster-node-timeout {timeout} \
         --cluster-require-full-coverage {coverage} --cluster-migration-barrier 999 \
         --cluster-replica-validity-factor 0 --cluster-announce-ip 127.0.0.1 \
         --cluster-announce-port {port} --cluster-announce-bus-port {bus}"
    );
    Mode::of_group(&arguments, builder.password.as_deref())
}
