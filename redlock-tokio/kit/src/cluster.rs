mod builder;
mod line;
mod nodes;
mod slot_move;

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use self::nodes::SLOTS;
use super::{
    commands::order_any,
    error::TopologyError,
    peer::{Peer, divide, sides},
    proxy::Proxy,
    server::RedisServer,
    waiting::wait_until,
};

pub use self::{builder::ClusterBuilder, slot_move::SlotMove};

/// A server gives up a failover by order after 5 s, which on a busy machine may be too short. Then it needs another
/// order.
const ORDER_LASTS: Duration = Duration::from_secs(6);

/// A Redis cluster: shards with a master and replicas each, as processes on free ports of the loopback interface.
///
/// Nodes and shards have numbers, from zero on. At the start node 0 is the master of shard 0, and so on. After
/// the masters come the replicas, shard by shard: see [`shard_of`](Self::shard_of). All processes end when this
/// is dropped, and even when the test's process ends in any way.
///
/// # Faults
///
/// | fault | how |
/// |---|---|
/// | a failover that an operator orders | [`fail_over`](Self::fail_over), [`force_fail_over`](Self::force_fail_over) |
/// | a host that crashes | [`node`](Self::node)`(0).`[`kill`](RedisServer::kill)`()`, later [`restart`](RedisServer::restart) |
/// | a server that pauses | [`freeze`](RedisServer::freeze), later [`thaw`](RedisServer::thaw) |
/// | a node that clients reach, and other nodes do not | [`cut_off`](Self::cut_off), later [`heal`](Self::heal) |
/// | resharding | [`move_slots`](Self::move_slots), or step by step [`start_move`](Self::start_move) |
/// | a slot without an owner | [`leave_uncovered`](Self::leave_uncovered), later [`cover`](Self::cover) |
/// | a faulty network between clients and a node | [`proxy`](Self::proxy) |
///
/// # Addresses
///
/// Nodes announce the addresses of proxies, one for commands and one for the bus between the nodes. So clients
/// that follow the cluster's answers, and the nodes themselves, reach every node through its [`Proxy`]. The
/// proxy's faults affect only clients. [`cut_off`](Self::cut_off) affects only the nodes among each other. The
/// addresses of the [`RedisServer`]s lead past the proxies.
///
/// # Blocking
///
/// Methods that ask the servers block the thread. Call them within `spawn_blocking` if the same thread has to
/// run other tasks meanwhile.
///
/// ```
/// use redlock_kit::Cluster;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::spawn()?; // three shards with a replica each
/// assert_eq!(cluster.owner_of(0), Some(0));
///
/// let promoted = cluster.fail_over(0)?;
/// assert_eq!(cluster.owner_of(0), Some(promoted));
///
/// cluster.move_slots(0..=99, 1)?;
/// assert_eq!(cluster.owner_of(0), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cluster {
    /// The masters of the shards at the start, then the replicas of the first shard, those of the second one, and so on.
    peers: Vec<Peer>,
    shards: usize,
    /// How many replicas each shard has.
    replicas: usize,
    password: Option<String>,
}

impl ClusterBuilder {
    /// Starts the processes and makes a cluster of them. Blocks until all nodes know each other and the replicas
    /// have their masters' data, which takes a few seconds.
    ///
    /// # Panics
    ///
    /// If the number of shards is zero, or if there would be more than 200 nodes.
    pub fn spawn(self) -> Result<Cluster, TopologyError> {
        assert!(self.shards > 0, "a cluster has at least one shard");
        let cluster = Cluster::spawn_nodes(&self)?;
        cluster.join(self.node_timeout)?;
        cluster.settle()?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Starts a cluster of three shards with a replica each. Blocks until the cluster works, which takes a few
    /// seconds.
    ///
    /// The program is `redis-server`, or the one that the environment variable `REDIS_SERVER` names.
    pub fn spawn() -> Result<Self, TopologyError> {
        Self::builder().spawn()
    }

    /// Returns a builder of a cluster with other numbers, times or passwords.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Orders a failover of a shard whose master is up: the master hands its shard over, and no write is lost
    /// (`CLUSTER FAILOVER`). Blocks until a majority of the nodes names another master. Returns its number.
    pub fn fail_over(&self, shard: usize) -> Result<usize, TopologyError> {
        self.order_failover(shard, &["CLUSTER", "FAILOVER"])
    }

    /// Orders a failover of a shard whose master may be down (`CLUSTER FAILOVER FORCE`). Writes that the replica
    /// has not received are lost. Blocks until a majority of the nodes names another master. Returns its number.
    pub fn force_fail_over(&self, shard: usize) -> Result<usize, TopologyError> {
        self.order_failover(shard, &["CLUSTER", "FAILOVER", "FORCE"])
    }

    fn order_failover(&self, shard: usize, order: &[&str]) -> Result<usize, TopologyError> {
        let old = self.wait_for_master(shard)?;
        let mut ordered: Option<Instant> = None;
        wait_until("the nodes name another master", || {
            let other = self.other_master(old);
            if other.is_err() && ordered.is_none_or(|it| it.elapsed() > ORDER_LASTS) {
                let replicas = self.of_shard(shard).filter(|it| *it != old);
                order_any(replicas.map(|it| self.commands(it)), order)?;
                ordered = Some(Instant::now());
            }
            other
        })
    }

    /// Blocks until a majority of the nodes names another master of this node's shard, and that node is one.
    /// Returns its number.
    pub fn wait_for_other_master(&self, old: usize) -> Result<usize, TopologyError> {
        wait_until("the nodes name another master", || self.other_master(old))
    }

    fn wait_for_master(&self, shard: usize) -> Result<usize, TopologyError> {
        wait_until("the shard has a master", || {
            let master = self.master_of(shard);
            master.ok_or_else(|| format!("shard {shard} has none"))
        })
    }

    /// Returns the master of this node's shard if a majority of the nodes names another one, and that node is one.
    fn other_master(&self, old: usize) -> Result<usize, String> {
        let master = self.master_of(self.shard_of(old));
        let new = master.filter(|new| *new != old);
        let new = new.ok_or_else(|| format!("the master is {master:?}"))?;
        self.check_role(new, true).map(|()| new)
    }

    /// Blocks until all nodes are up and agree: every slot has an owner, all nodes name the same owners, and the
    /// replicas have their masters' data.
    pub fn settle(&self) -> Result<(), TopologyError> {
        wait_until("all nodes agree", || self.settled())
    }

    /// Moves slots with their keys to another shard, while clients go on. Blocks until a majority of the nodes
    /// names the new owner. Slots that the shard has already are left alone, unless they are on their way.
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: usize) -> Result<(), TopologyError> {
        self.start_move(slots, to)?
            .into_iter()
            .try_for_each(SlotMove::finish)
    }

    /// Starts to move slots to another shard: from now on they are on their way. Returns one move for each shard
    /// that the slots come from.
    pub fn start_move(
        &self,
        slots: RangeInclusive<u16>,
        to: usize,
    ) -> Result<Vec<SlotMove<'_>>, TopologyError> {
        assert!(to < self.shards, "there are only {} shards", self.shards);
        assert!(*slots.end() < SLOTS, "there are only {SLOTS} slots");
        let lines = wait_until("a node answers", || self.any_lines())?;
        let mut moves = Vec::new();
        for from in (0..self.shards).filter(|it| *it != to) {
            let lines = lines
                .iter()
                .filter(|it| self.shard_of_line(it) == Some(from));
            let owned = |slot: &u16| lines.clone().any(|it| it.has_slot(*slot));
            let owned: Vec<_> = slots.clone().filter(owned).collect();
            if !owned.is_empty() {
                moves.push(SlotMove::start(self, owned, from, to)?);
            }
        }
        Ok(moves)
    }

    /// Takes a slot away from its owner, so that the slot has none. Its keys stay where they are, and no client
    /// reaches them. Blocks until all nodes know that.
    ///
    /// Unless [`full_coverage`](ClusterBuilder::full_coverage) is off, the cluster then refuses commands on all
    /// slots.
    pub fn leave_uncovered(&self, slot: u16) -> Result<(), TopologyError> {
        let order = ["CLUSTER", "DELSLOTS", &slot.to_string()];
        let owner = self.owner_of(slot);
        wait_until("no node names an owner of the slot", || {
            let all = 0..self.node_count();
            // The owner first. Otherwise its next message would claim the slot again.
            for number in owner.into_iter().chain(all) {
                if self.lines(number)?.iter().any(|it| it.has_slot(slot)) {
                    // A refusal means that the node has heard of the change meanwhile.
                    let _ = self.commands(number).ask::<()>(&order);
                    return Err(format!("node {number} names one"));
                }
            }
            Ok(())
        })
    }

    /// Gives a slot that has no owner to a shard. Blocks until a majority of the nodes names the owner.
    pub fn cover(&self, slot: u16, shard: usize) -> Result<(), TopologyError> {
        let master = self.wait_for_master(shard)?;
        let _: () = self
            .commands(master)
            .ask(&["CLUSTER", "ADDSLOTS", &slot.to_string()])?;
        wait_until("the nodes know the owner of the slot", || {
            let owner = self.owner_of(slot);
            let is_owner = owner == Some(master);
            is_owner.then_some(()).ok_or_else(|| format!("{owner:?}"))
        })
    }

    /// Cuts these nodes off from all others: nothing passes any more between the two sides, neither on the bus
    /// nor to a replica. Clients reach both sides. An earlier cut ends.
    ///
    /// No connection breaks. The bytes are held, and arrive after [`heal`](Self::heal), as those of a network
    /// that recovers do. A master that is cut off from most masters refuses commands after the node timeout.
    ///
    /// # Panics
    ///
    /// If there is no node with one of these numbers. On systems other than Linux, where all processes have one
    /// address: freeze the nodes there.
    pub fn cut_off(&self, nodes: &[usize]) {
        divide(sides(&self.peers, nodes));
    }

    /// Ends the effect of [`cut_off`](Self::cut_off). Faults of proxies stay.
    pub fn heal(&self) {
        self.cut_off(&[]);
    }

    /// Returns the number of the node that a majority of all nodes names as the owner of a slot, if there is one.
    /// Nodes that do not answer count as part of the whole.
    ///
    /// The owner may be down, if the others have not noticed yet.
    #[must_use]
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        self.elect(|lines| {
            let mut lines = lines.iter();
            lines.find(|it| it.has_slot(slot)).map(|it| it.port)
        })
    }

    /// Returns the number of the node that a majority of all nodes names as the master of a shard, if there is
    /// one. See [`owner_of`](Self::owner_of).
    #[must_use]
    pub fn master_of(&self, shard: usize) -> Option<usize> {
        self.elect(|lines| {
            let lines = lines.iter();
            let masters =
                lines.filter(|it| it.is_master() && self.shard_of_line(it) == Some(shard));
            // An old master that is down counts as a master still, with an older epoch.
            masters.max_by_key(|it| it.config_epoch).map(|it| it.port)
        })
    }

    fn of_shard(&self, shard: usize) -> impl Iterator<Item = usize> {
        (0..self.node_count()).filter(move |it| self.shard_of(*it) == shard)
    }

    /// Returns the number of the shard that a node belongs to.
    #[must_use]
    pub fn shard_of(&self, node: usize) -> usize {
        assert!(
            node < self.node_count(),
            "there are only {}",
            self.node_count()
        );
        match node.checked_sub(self.shards) {
            None => node,
            Some(replica) => replica / self.replicas,
        }
    }

    /// Returns the URLs of all nodes, without credentials.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let peers = self.peers.iter();
        peers.map(|it| it.proxy.url()).collect()
    }

    /// Returns one of the nodes.
    #[must_use]
    pub fn node(&self, number: usize) -> &RedisServer {
        &self.peers[number].process
    }

    /// Returns the proxy between the clients and one of the nodes.
    #[must_use]
    pub fn proxy(&self, number: usize) -> &Proxy {
        &self.peers[number].proxy
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.peers.len()
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards
    }
}
