use std::time::Duration;

use redlock_core::{Origin, Replication, ReplicationId, RunId};

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

/// A server's description of itself (`INFO`). A server may leave out each field. The
/// [checks](crate::Check) that need the field are then unmet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The server's name for itself from its start to its end (`run_id`).
    pub run_id: Option<RunId>,
    /// How long the server had been up when it was asked, in whole seconds (`uptime_in_seconds`). In a
    /// [`NodeStatus`](crate::NodeStatus) that is the time of the last connect.
    pub uptime: Option<Duration>,
    /// The history of the server's keys, which changes when the server is promoted; `None` if unknown.
    #[doc(hidden)]
    pub replication: Option<Replication>,
    /// The version, such as `redis 7.0.15` or `valkey 9.1.2`.
    pub version: String,
    /// Whether the server is a master (`role`).
    pub role: Role,
    /// Whether the server is a node of a cluster.
    pub in_cluster: bool,
    /// The server's policy when it runs out of memory, if its memory has a limit. `noeviction` deletes no
    /// keys.
    pub eviction: Option<String>,
    /// Whether the server writes an append-only file.
    pub appends_to_file: bool,
}

/// The role of a server (`role`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is a master.
    Master,
    /// It copies this master: `host:port`.
    ReplicaOf(String),
    /// It does not say.
    Withheld,
}

impl ServerInfo {
    /// Describes an independent master that has been up for this long and was never promoted. Change the
    /// fields to describe other servers.
    #[doc(hidden)]
    #[must_use]
    pub fn new(run_id: RunId, uptime: Duration) -> Self {
        Self {
            run_id: Some(run_id),
            uptime: Some(uptime),
            replication: Some(Replication {
                id: ReplicationId::NONE,
                origin: Origin::Own,
            }),
            version: String::new(),
            role: Role::Master,
            in_cluster: false,
            eviction: None,
            appends_to_file: false,
        }
    }
}
