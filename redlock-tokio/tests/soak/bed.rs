use std::time::Duration;

use redlock_tokio::test_util::{Proxy, RedisServer, RedisServers};

use crate::{Result, support::Cli};

/// How many nodes vote.
pub(crate) const NODES: usize = 5;

/// How many keys are locked.
pub(crate) const KEYS: usize = 36;

/// The longest ttl of any lock, and so how long a node must be up before it votes, or nearly.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);

/// How long a node that came up has no vote, with the time to connect again: the longest ttl with
/// its drift, a second for the coarse uptime, and some more.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(5);

/// The servers, and the network in front of those that vote.
pub(crate) struct Bed {
    pub(crate) nodes: RedisServers,
    pub(crate) proxies: Vec<Proxy>,
    /// Where the counters are that the locks protect. Nothing ever happens to it.
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

/// The lock of a key, or the counter that it protects.
pub(crate) fn name(key: usize) -> String {
    format!("soak:{key}")
}

/// How often a counter was written.
pub(crate) fn writes(key: usize) -> String {
    format!("soak:{key}:writes")
}
