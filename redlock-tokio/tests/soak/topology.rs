use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{bed::AWAITED, support::MS};

/// The longest ttl of any lock, which is about the uptime that a node needs before it votes.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);

/// What the locks are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topology {
    /// Five independent servers.
    Masters,
    /// One group whose master the sentinels name: a single voter.
    Sentinel,
    /// A cluster of three shards, and so three voters.
    Cluster,
}

impl Topology {
    /// At most a third of each ttl.
    pub(crate) const WINDOW: Duration = Duration::from_millis(500);

    /// How long a new owner has no vote, with the allowance for drift.
    pub(crate) const SETTLING: Duration = Duration::from_millis(2600);

    /// Returns the ttls that tasks use.
    pub(crate) fn ttls(self) -> [Duration; 3] {
        match self {
            Self::Masters => [MS(600), MS(1000), MAX_TTL],
            Self::Sentinel | Self::Cluster => [MS(1500), MS(1700), MAX_TTL],
        }
    }

    /// Returns the longest pause of a task between reading and writing.
    pub(crate) fn longest_pause(self) -> Duration {
        match self {
            Self::Masters => MS(20),
            // Failovers are rare, so many locks have to be held during each.
            Self::Sentinel | Self::Cluster => MS(500),
        }
    }

    /// Returns how many tasks each worker runs.
    pub(crate) fn tasks(self, waits: bool) -> usize {
        match self {
            _ if waits => AWAITED.len(),
            Self::Masters => 80,
            // These runs share the machine with the other ones.
            Self::Sentinel | Self::Cluster => 30,
        }
    }
}
