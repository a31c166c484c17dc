//! What `OPERATIONS.md` tells operators to do: a dead node is replaced at its address.

use std::time::Duration;

use redlock_kit::{Proxy, RedisServers};
use redlock_tokio::{Redlock, RedlockBuilder};

use crate::support::{
    Cli, MS, built, eventually,
    states::{all_vote, is_quarantined, votes},
};

/// The longest ttl, which is about the time for which a fresh server has no vote. A busy machine does the rest of a test in
/// this time.
const MAX_TTL: Duration = Duration::from_secs(6);

fn over(urls: &[String]) -> RedlockBuilder {
    let builder = Redlock::builder().nodes(urls).ttl(MAX_TTL);
    builder.node_timeout(Duration::from_secs(1))
}

/// Three servers. A name in front of each one leads to it, like a name of the DNS.
struct Named {
    servers: RedisServers,
    names: [Proxy; 3],
}

impl Named {
    fn spawn() -> Self {
        let servers = RedisServers::spawn(3).unwrap();
        let name = |index| Proxy::spawn(servers.get(index).address()).unwrap();
        let names = [0, 1, 2].map(name);
        Self { servers, names }
    }

    fn urls(&self) -> Vec<String> {
        self.names.iter().map(Proxy::url).collect()
    }

    /// Ends a server for good, and lets its name lead to another one.
    fn replace(&self, index: usize, by: &RedisServers) {
        self.servers.get(index).kill();
        let address = by.get(0).address();
        self.names[index].reroute_all(address).unwrap();
        self.names[index].reset();
    }
}

#[tokio::test]
async fn a_dead_node_is_replaced_at_its_address_while_a_lock_is_held() {
    let named = Named::spawn();
    let holder = built(over(&named.urls())).await;
    all_vote(&holder).await;
    let lock = holder.lock("k").wait(MS(8000));
    let guard = lock.max_hold(Duration::MAX).await.unwrap();
    let token = Some(guard.value());

    let fresh = RedisServers::spawn(1).unwrap();
    named.replace(2, &fresh);
    eventually("no vote at first", || is_quarantined(&holder, 2)).await;
    let other = built(over(&named.urls())).await;
    let sees_it = || is_quarantined(&other, 2);
    eventually("nor for a process that starts now", sees_it).await;
    let server = Cli::of(fresh.get(0));
    eventually("it has our key", || server.get("k") == token).await;
    all_vote(&holder).await;
    assert!(guard.is_valid());

    // It replaces the old one in full: the lock outlives the loss of another server.
    named.servers.get(0).kill();
    eventually("the loss is noticed", || !votes(&holder, 0)).await;
    while guard.extend().await.is_err() {
        assert!(guard.is_valid());
    }
    assert!(other.try_lock("k").await.is_err());
}
