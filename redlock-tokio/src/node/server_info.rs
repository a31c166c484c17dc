use std::time::Duration;

use redlock_core::{Replication, ReplicationId, RunId};

use super::NodeError;

/// The server behind a [`Session`](super::Session), as a lock sees it to decide whether the node may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// There is no server: the node is within the process, and may always vote.
    None,
    /// The server has described itself.
    Known(ServerInfo),
    /// The server does not describe itself, for this reason.
    Withheld(NodeError),
}

impl Server {
    /// Returns whether nothing can be judged now: there is no server, or the server is only busy. A server
    /// that does not allow the question will not answer it in a second either.
    pub(crate) fn may_tell_later(&self) -> bool {
        match self {
            Self::None => true,
            Self::Withheld(NodeError::Refused { code, .. }) => &**code != "NOPERM",
            Self::Withheld(_) => true,
            Self::Known(_) => false,
        }
    }
}

/// A server's description of itself (`INFO`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The server's name for itself from its start to its end.
    pub run_id: RunId,
    /// How long the server had been up when it was asked, in whole seconds. In a
    /// [`NodeStatus`](crate::NodeStatus) that is the time of the last connect.
    pub uptime: Duration,
    /// The history of the server's keys, which changes when the server is promoted; `None` if unknown.
    pub replication: Option<Replication>,
    /// The version, such as `redis 7.0.15` or `valkey 9.1.2`.
    pub version: String,
    /// The master that the server is a replica of.
    pub replica_of: Option<String>,
    /// Whether the server is a node of a cluster.
    pub in_cluster: bool,
    /// The server's policy when it runs out of memory, if its memory has a limit. `noeviction` deletes no
    /// keys.
    pub eviction: Option<String>,
    /// Whether the server writes an append-only file.
    pub appends_to_file: bool,
}

impl ServerInfo {
    /// Describes an independent master that has been up for this long and was never promoted. Change the
    /// fields to describe other servers.
    #[must_use]
    pub fn new(run_id: RunId, uptime: Duration) -> Self {
        Self {
            run_id,
            uptime,
            replication: Some(Replication {
                id: ReplicationId::new([b'0'; ReplicationId::LEN]),
                continues: None,
            }),
            version: String::new(),
            replica_of: None,
            in_cluster: false,
            eviction: None,
            appends_to_file: false,
        }
    }
}
