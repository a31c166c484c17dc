//! Several clients of several servers.

use redlock_kit::RedisServers;
use redlock_tokio::Redlock;

use crate::support::{Cli, MS, built, trusting};

/// Starts servers, and connects some clients to them.
pub(crate) async fn fleet<const N: usize>(count: usize) -> (RedisServers, [Redlock; N]) {
    let servers = RedisServers::spawn(count).unwrap();
    let clients = clients(&servers).await;
    (servers, clients)
}

pub(crate) async fn clients<const N: usize>(servers: &RedisServers) -> [Redlock; N] {
    clients_over(servers, "").await
}

/// Connects clients by URLs that end like this.
pub(crate) async fn clients_over<const N: usize>(
    servers: &RedisServers,
    end: &str,
) -> [Redlock; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        let urls = servers.urls().into_iter().map(|url| url + end);
        clients.push(built(trusting(urls).node_timeout(MS(2000))).await);
    }
    clients.try_into().expect("as many as asked for")
}

/// Returns a foreign client of each server.
pub(crate) fn clis(servers: &RedisServers) -> Vec<Cli> {
    servers.iter().map(Cli::of).collect()
}

/// Lets each server carry out a command. Returns their answers.
pub(crate) fn each(nodes: &[Cli], command: &[&str]) -> Vec<String> {
    nodes.iter().map(|node| node.run(command)).collect()
}
