//! Real servers for the tests of this workspace, and a faulty network in front of them.
//!
//! - [`RedisServers`] are real `redis-server` processes, which a test kills, freezes and restarts.
//! - [`Sentinels`] are a master with replicas, and the sentinels that watch them: they fail over.
//! - A [`Cluster`] has shards, which fail over and give slots to each other.
//! - A [`Proxy`] puts a faulty network in front of a server.
//! - A [`Worker`] is another process of a test or of a benchmark.
//!
//! Steps that the servers refuse, or do not complete within three minutes, are errors. A number that no server has is a
//! panic.
//!
//! ```
//! # use redlock_kit::RedisServers;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = RedisServers::spawn(5)?;
//! let redlock = servers.builder().build().await?;
//!
//! servers.get(0).kill(); // four of five are a majority
//! let guard = redlock.lock("order:42").await?;
//!
//! servers.get(0).restart()?; // on the same port
//! # Ok(())
//! # }
//! ```
//!
//! # A Redis that hangs
//!
//! A killed server is an easy fault: the connection breaks, and the client knows at once. Put a [`Proxy`] in
//! front of each server to test other faults.
//!
//! ```
//! # use redlock_kit::{Proxy, RedisServers};
//! # use redlock_tokio::{Durability, LockError, Redlock};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = RedisServers::spawn(3)?;
//! let proxies: Vec<Proxy> = servers
//!     .iter()
//!     .map(|server| Proxy::spawn(server.address()))
//!     .collect::<Result<_, _>>()?;
//! let redlock = Redlock::builder()
//!     .nodes(proxies.iter().map(Proxy::url))
//!     .durability(Durability::AssumedForTests) // the servers have just come up
//!     .build()
//!     .await?;
//!
//! // One server hangs: its connections stay open, and no replies come.
//! proxies[0].replies().hold();
//! let guard = redlock.lock("order:42").await?; // two of three are a majority
//! drop(guard);
//!
//! // The first server cannot be connected to any more, and another becomes slow.
//! proxies[0].reset();
//! proxies[0].ignore();
//! proxies[1].replies().delay(Duration::from_secs(1));
//! let error = redlock.lock("order:42").wait(Duration::ZERO).await.unwrap_err();
//! assert!(matches!(error, LockError::NoQuorum(_)), "in time");
//!
//! proxies.iter().for_each(Proxy::heal);
//! let guard = redlock.lock("order:42").await?;
//! # Ok(())
//! # }
//! ```

mod cluster;
mod commands;
mod error;
mod launch;
mod peer;
mod port;
mod proxy;
mod sentinels;
mod server;
mod servers;
mod waiting;
mod worker;

pub use self::{
    cluster::{Cluster, ClusterBuilder, SlotMove},
    error::{SpawnError, TopologyError},
    proxy::{Link, Proxy},
    sentinels::{Sentinels, SentinelsBuilder},
    server::RedisServer,
    servers::RedisServers,
    worker::Worker,
};
