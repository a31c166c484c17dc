//! Nodes for tests: [`TestNodes`] are in memory, and a test decides when their locks are contended or lost.

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
mod test_nodes;
mod waiting;

pub use self::test_nodes::TestNodes;
// For the tests of this crate. They may change at any time.
#[doc(hidden)]
pub use self::{
    cluster::{Cluster, ClusterBuilder, SlotMove},
    error::{SpawnError, TopologyError},
    proxy::{Link, Proxy},
    sentinels::{Sentinels, SentinelsBuilder},
    server::RedisServer,
    servers::RedisServers,
};
