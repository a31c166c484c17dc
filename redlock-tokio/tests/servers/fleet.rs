//! Several clients of several servers.

use std::time::Duration;

use redlock_tokio::{Redlock, test_util::RedisServers};

use crate::support::MS;

/// Starts servers, and connects some clients to them.
pub(crate) async fn fleet<const N: usize>(count: usize) -> (RedisServers, [Redlock; N]) {
    let servers = RedisServers::spawn(count).unwrap();
    let clients = clients(&servers).await;
    (servers, clients)
}

pub(crate) async fn clients<const N: usize>(servers: &RedisServers) -> [Redlock; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(servers.builder().build().await.expect("servers"));
    }
    clients.try_into().expect("as many as asked for")
}

/// Kills one server after the other, and starts it again without its keys. `ttl` is the longest that a client may use.
pub(crate) async fn restart_each(servers: &RedisServers, ttl: Duration) {
    for server in servers.iter() {
        tokio::time::sleep(MS(300)).await;
        server.kill();
        tokio::time::sleep(MS(100)).await;
        server.restart().unwrap();
        // Until the server votes again.
        tokio::time::sleep(3 * ttl).await;
    }
}
