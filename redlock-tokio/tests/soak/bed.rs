use std::{ops::Range, time::Duration};

use redlock_kit::{Cluster, Proxy, RedisServer, RedisServers, Sentinels};

use crate::{
    Result,
    support::{Cli, bed::Bed as Masters, shards},
    topology::Topology,
};

/// How many nodes vote, if they are independent masters.
pub(crate) const NODES: usize = 5;

/// How many keys are locked in all ways.
pub(crate) const KEYS: usize = 36;

/// The keys that are only locked with fences. Fences alone protect their counters.
pub(crate) const FENCED_KEYS: Range<usize> = KEYS..KEYS + 4;

/// The keys that nobody wants but waiters, who wait in order.
pub(crate) const AWAITED: Range<usize> = FENCED_KEYS.end..FENCED_KEYS.end + 2;

/// The slots of a semaphore. Each counts as a key: if no two holders have the same slot, there are no more holders than
/// permits.
pub(crate) const SLOTS: Range<usize> = AWAITED.end..AWAITED.end + 3;

/// The key of the semaphore.
pub(crate) const SEMAPHORE: &str = "soak:permits";

/// How long a restarted node has no vote, including the time to connect: the longest ttl with its drift, a
/// second because the uptime is in whole seconds, and a margin.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(5);

/// How long a master is silent before it is found down, in a group or a cluster.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// Enough for a failover while old masters are on their way back.
const REPLICAS: usize = 3;

/// The servers of a run.
pub(crate) struct Bed {
    pub(crate) ground: Ground,
    /// The server with the counters that the locks protect. It never fails.
    store: RedisServers,
}

/// The servers that vote.
pub(crate) enum Ground {
    Masters(Masters),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Bed {
    pub(crate) fn new(topology: Topology) -> Result<Self> {
        Ok(Self {
            ground: match topology {
                Topology::Masters => Ground::Masters(Masters::new(NODES)),
                Topology::Sentinel => Ground::Sentinel(
                    Sentinels::builder()
                        .replicas(REPLICAS)
                        .down_after(DOWN_AFTER)
                        .failover_timeout(3 * DOWN_AFTER)
                        .spawn()?,
                ),
                Topology::Cluster => {
                    Ground::Cluster(Cluster::builder().node_timeout(DOWN_AFTER).spawn()?)
                }
            },
            store: RedisServers::spawn(1)?,
        })
    }

    /// Returns the URLs of the nodes for clients that want so many votes of a cluster.
    pub(crate) fn urls(&self, voters: usize) -> Vec<String> {
        match &self.ground {
            Ground::Masters(masters) => masters.proxies.iter().map(Proxy::url).collect(),
            Ground::Sentinel(group) => vec![group.url()],
            Ground::Cluster(cluster) => {
                // A waiter may start after slots of two voters have moved to one shard.
                let options = format!("voters={voters}&allow_shared_servers=true");
                vec![format!("{}?{options}", shards::url_of(&cluster.urls()))]
            }
        }
    }

    pub(crate) fn store(&self) -> &RedisServer {
        self.store.get(0)
    }

    /// Returns the way to each server that votes now.
    pub(crate) fn voters(&self) -> Vec<Cli> {
        let masters = (0..self.ground.masters()).filter_map(|it| self.ground.master(it));
        let masters = masters.map(|it| Cli::of(self.ground.server(it)));
        masters.collect()
    }
}

/// Returns the name of a lock, and of the counter that the lock protects.
pub(crate) fn name(key: usize) -> String {
    match key.checked_sub(SLOTS.start) {
        Some(slot) => format!("{SEMAPHORE}:slot:{slot}"),
        None => format!("soak:{key}"),
    }
}

/// Returns the name of the largest fencing token that the store has seen for a counter.
pub(crate) fn fence(key: usize) -> String {
    format!("soak:{key}:fence")
}

/// Returns the name of the number of writes to a counter.
pub(crate) fn writes(key: usize) -> String {
    format!("soak:{key}:writes")
}
