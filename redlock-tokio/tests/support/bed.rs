use std::{collections::BTreeMap, time::Duration};

use redlock_kit::{Proxy, RedisServer, RedisServers};
use redlock_tokio::{Durability, LockOptions, Redlock, RedlockBuilder};

use super::{Cli, MS, eventually};

/// A ttl that is longer than any test, so that no key expires.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(60);

/// Longer than an answer takes on a slow machine, and short enough for a test to wait for it.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Servers with a proxy in front of each.
pub(crate) struct Bed {
    pub(crate) servers: RedisServers,
    pub(crate) proxies: Vec<Proxy>,
}

impl Bed {
    pub(crate) fn new(count: usize) -> Self {
        let servers = RedisServers::spawn(count).unwrap();
        let spawn = |server: &RedisServer| Proxy::spawn(server.address()).unwrap();
        let proxies = servers.iter().map(spawn).collect();
        Self { servers, proxies }
    }

    /// Returns a builder of a client that connects through the proxies.
    pub(crate) fn builder(&self) -> RedlockBuilder {
        let defaults = LockOptions::new().ttl(LONG_TTL).retry_delay(MS(5), MS(20));
        Redlock::builder()
            .nodes(self.proxies.iter().map(Proxy::url))
            .durability(Durability::AssumedForTests)
            .options(defaults)
            .node_timeout(NODE_TIMEOUT)
    }

    pub(crate) async fn redlock(&self) -> Redlock {
        self.builder().build().await.unwrap()
    }

    /// Connects a client past the proxies, so that no fault affects it.
    pub(crate) async fn bystander(&self) -> Redlock {
        let builder = self.servers.builder().ttl(LONG_TTL);
        builder.node_timeout(NODE_TIMEOUT).build().await.unwrap()
    }

    pub(crate) fn cli(&self, index: usize) -> Cli {
        Cli::of(self.servers.get(index))
    }

    /// Waits until all servers are empty.
    pub(crate) async fn no_key_is_left(&self) {
        self.only_these_are_left(|_| BTreeMap::new()).await;
    }

    /// Waits until each server has exactly these keys with these values. Fencing counters do not count,
    /// since they stay for ever.
    pub(crate) async fn only_these_are_left(
        &self,
        on_node: impl Fn(usize) -> BTreeMap<String, String>,
    ) {
        for node in 0..self.servers.len() {
            let expected = on_node(node);
            let is_left = || self.cli(node).locks() == expected;
            eventually("only foreign keys are left", is_left).await;
        }
    }
}
