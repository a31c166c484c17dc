//! Several clients of several servers.

use std::time::Duration;

use futures::future::try_join_all;
use redlock_kit::RedisServers;
use redlock_tokio::Redlock;

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

/// Has twelve tasks work with three clients, while one server after the other is killed and comes back without its keys. Task
/// `n` uses client `n % 3`. Returns the results of all tasks.
pub(crate) async fn work_while_servers_restart<T, F>(work: impl Fn(usize, Redlock) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = Vec<T>> + Send + 'static,
{
    const TTL: Duration = Duration::from_secs(1);
    let servers = RedisServers::spawn(5).unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let builder = Redlock::builder().nodes(servers.urls()).ttl(TTL);
        let client = builder.max_ttl(TTL).build().await.unwrap();
        client.ready(MS(20_000)).await.unwrap();
        clients.push(client);
    }
    let tasks: Vec<_> = (0..12)
        .map(|task| tokio::spawn(work(task, clients[task % 3].clone())))
        .collect();
    for server in servers.iter() {
        tokio::time::sleep(MS(300)).await;
        server.kill();
        tokio::time::sleep(MS(100)).await;
        server.restart().unwrap();
        // Until the server votes again.
        tokio::time::sleep(3 * TTL).await;
    }
    let results = try_join_all(tasks).await.unwrap();
    results.into_iter().flatten().collect()
}
