//! A cluster as the tests of locks see it: the slots of its voters, and the keys on their servers.

use std::time::Duration;

use redlock_kit::{Cluster, ClusterBuilder};
use redlock_tokio::{Durability, Redlock, RedlockBuilder};

use super::Cli;

/// A busy machine holds up a cluster's nodes, and their answers, for longer than the usual timeouts.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn cluster() -> ClusterBuilder {
    Cluster::builder().node_timeout(NODE_TIMEOUT)
}

/// Returns the URL of a cluster, by one seed.
pub(crate) fn url(cluster: &Cluster) -> String {
    url_of(&cluster.urls()[..1])
}

/// Returns the URL of a cluster with these seeds.
pub(crate) fn url_of<S: AsRef<str>>(seeds: &[S]) -> String {
    let seeds = seeds.iter().map(|seed| seed.as_ref());
    let hosts: Vec<_> = seeds.map(|it| it.trim_start_matches("redis://")).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// Returns a builder over a cluster whose servers have never held a lock.
pub(crate) fn trusting(url: &str) -> RedlockBuilder {
    strict(url).durability(Durability::AssumedForTests)
}

/// Returns a builder that keeps all rules.
pub(crate) fn strict(url: &str) -> RedlockBuilder {
    Redlock::builder()
        .nodes(url)
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(Duration::from_secs(10))
}

/// Returns the slot of one of three voters.
pub(crate) fn slot(voter: usize) -> u16 {
    // A third of the slots for each voter, and its slot in the middle.
    [2_730, 8_192, 13_653][voter]
}

/// Returns what the servers of three voters call a key.
pub(crate) fn names(key: &str) -> [String; 3] {
    ["21418", "8209", "16418"].map(|tag| format!("{{{tag}}}{key}"))
}

/// Returns a client of the server that owns the slot of one of three voters.
pub(crate) fn owner(cluster: &Cluster, voter: usize) -> Cli {
    let owner = cluster
        .owner_of(slot(voter))
        .expect("the slot has an owner");
    Cli::of(cluster.node(owner))
}

pub(crate) fn owners(cluster: &Cluster) -> [Cli; 3] {
    [0, 1, 2].map(|voter| owner(cluster, voter))
}
