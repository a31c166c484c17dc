use std::time::Duration;

use redlock_tokio::test_util::{Proxy, RedisServer, RedisServers};

use crate::{Result, support::Cli};

/// How many nodes vote.
pub(crate) const NODES: usize = 5;

/// How many keys are locked.
pub(crate) const KEYS: usize = 36;

/// The longest ttl of any lock, which is about the uptime that a node needs before it votes.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);

/// How long a restarted node has no vote, including the time to connect: the longest ttl with its drift, a
/// second because the uptime is in whole seconds, and a margin.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(5);

/// The servers, and the proxies in front of those that vote.
pub(crate) struct Bed {
    pub(crate) nodes: RedisServers,
    pub(crate) proxies: Vec<Proxy>,
    /// The server with the counters that the locks protect. It never fails.
    store: RedisServers,
}

impl Bed {
    pub(crate) fn new() -> Result<Self> {
        let nodes = RedisServers::spawn(NODES)?;
        let spawn = |node: &RedisServer| Proxy::spawn(node.address());
        let proxies = nodes.iter().map(spawn).collect::<Result<_, _>>()?;
        Ok(Self {
            nodes,
            proxies,
            store: RedisServers::spawn(1)?,
        })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    pub(crate) fn store(&self) -> &RedisServer {
        self.store.get(0)
    }

    pub(crate) fn cli(&self, node: usize) -> Cli {
        Cli::of(self.nodes.get(node))
    }
}

/// Returns the name of a lock, and of the counter that the lock protects.
pub(crate) fn name(key: usize) -> String {
    format!("soak:{key}")
}

/// Returns the name of the number of writes to a counter.
pub(crate) fn writes(key: usize) -> String {
    format!("soak:{key}:writes")
}
