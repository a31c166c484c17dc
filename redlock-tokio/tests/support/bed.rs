use std::{collections::BTreeMap, time::Duration};

use redlock_tokio::{
    LockOptions, Redlock, RedlockBuilder,
    test_util::{Proxy, RedisServer, RedisServers},
};

use super::{Cli, MS, eventually};

/// So long that in no test a key goes by itself.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(60);

/// What a slow machine does not need for an answer, and a test can wait for.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Servers, and a proxy in front of each.
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

    /// A client that goes by the proxies, with a ttl at whose end no test waits.
    pub(crate) fn builder(&self) -> RedlockBuilder {
        let defaults = LockOptions::new().ttl(LONG_TTL).retry_delay(MS(5), MS(20));
        Redlock::builder()
            .nodes(self.proxies.iter().map(Proxy::url))
            .trust_fresh_nodes()
            .options(defaults)
            .node_timeout(NODE_TIMEOUT)
    }

    pub(crate) async fn redlock(&self) -> Redlock {
        self.builder().build().await.unwrap()
    }

    /// A client that the faults do not touch.
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

    /// Waits until each server has these keys with these values, and no others. Fencing counters
    /// do not count: they are there to stay.
    pub(crate) async fn only_these_are_left(
        &self,
        on_node: impl Fn(usize) -> BTreeMap<String, String>,
    ) {
        for node in 0..self.servers.len() {
            let expected = on_node(node);
            let is_so = || self.cli(node).locks() == expected;
            eventually("only foreign keys are left", is_so).await;
        }
    }
}
