use core::{fmt, time::Duration};

use crate::Timestamp;

macro_rules! hexadecimal_id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; Self::LEN]);

        impl $name {
            /// The number of digits.
            pub const LEN: usize = 40;

            /// Creates an id from the digits in the server's answer.
            #[must_use]
            pub const fn new(digits: [u8; Self::LEN]) -> Self {
                Self(digits)
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.escape_ascii().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hexadecimal_id! {
    /// The id of a server process, from its start to its end: Redis' `run_id`, 40 hexadecimal digits.
    RunId
}

hexadecimal_id! {
    /// The id of one member of an authority: the `runid` of a sentinel, or the node id of a cluster's node.
    /// 40 hexadecimal digits.
    MemberId
}

hexadecimal_id! {
    /// The id of the history of a server's keys: Redis' `master_replid`, 40 hexadecimal digits. A replica
    /// has the id of its master, and begins a history of its own when it is promoted.
    ReplicationId
}

impl ReplicationId {
    /// Forty zeros: no history. Some servers without replication say this in place of an id.
    pub const NONE: Self = Self([b'0'; Self::LEN]);
}

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerRole {
    /// It does not say.
    Withheld,
    /// It keeps keys of its own.
    Master,
    /// It copies a master, in a cluster or not.
    Replica,
    /// It is a master in a cluster.
    ClusterMaster,
}

/// The history of a server's keys (`INFO replication`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replication {
    /// The history that the server writes now (`master_replid`).
    pub id: ReplicationId,
    /// Where that history began (`master_replid2`).
    pub origin: Origin,
}

/// Where the [history](Replication) of a server's keys began (`master_replid2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The field is all zeros: the server was not promoted since it started, or its promotion is older
    /// than `repl-backlog-ttl`.
    Own,
    /// The history continues an earlier one. This is so after a promotion, after a restart from an RDB, and
    /// after the server was a replica for a while. Redis sets the field back to zero when the server has
    /// had no replica for `repl-backlog-ttl`.
    Continues(ReplicationId),
    /// The server does not say.
    Withheld,
}

/// A node's description of itself at one moment. A server may leave out each field; a [`Check`](crate::Check)
/// names what is lost then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// When the node was asked. Read *before* the question left.
    pub asked_at: Timestamp,
    /// The server process, or `None` if it does not say. The [history](Self::replication) then shows which
    /// server it is.
    pub run_id: Option<RunId>,
    /// How long the server has been up, in whole seconds, or `None` if it does not say.
    pub uptime: Option<Duration>,
    /// The history of its keys, or `None` if it does not say.
    pub replication: Option<Replication>,
    /// The age that the history has at least, by a [`AgeMarker`](crate::AgeMarker). `None` if the
    /// driver has not read the marker, or there is none.
    pub history_age: Option<Duration>,
}

impl Sighting {
    /// The sighting of a server that says nothing.
    pub(crate) const fn of_silence(asked_at: Timestamp) -> Self {
        Self {
            asked_at,
            run_id: None,
            uptime: None,
            replication: None,
            history_age: None,
        }
    }

    /// Returns which server it is.
    pub(crate) fn server(&self) -> ServerId {
        let history = self.replication.map(|replication| replication.id);
        ServerId {
            run_id: self.run_id,
            history: history.filter(|id| *id != ReplicationId::NONE),
        }
    }
}

/// The facts by which a server can be told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerId {
    run_id: Option<RunId>,
    history: Option<ReplicationId>,
}

impl ServerId {
    /// Returns the id without the history, which a replica has in common with its master.
    pub(crate) const fn of_replica(self) -> Self {
        Self {
            history: None,
            ..self
        }
    }

    pub(crate) const fn is_unknown(&self) -> bool {
        self.run_id.is_none() && self.history.is_none()
    }

    /// Returns whether the two are one server: by the run id where both have one, and otherwise by the
    /// history. `None` if that does not show.
    pub(crate) fn is_same(&self, other: &Self) -> Option<bool> {
        if let (Some(ours), Some(theirs)) = (self.run_id, other.run_id) {
            return Some(ours == theirs);
        }
        Some(self.history? == other.history?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn ids_are_shown_as_their_digits() {
        let run_id = RunId::new([b'a'; RunId::LEN]);
        assert_eq!(
            format!("{run_id} {run_id:?}"),
            format!("{0} {0}", "a".repeat(40))
        );
        let odd = ReplicationId::new([b'\n'; ReplicationId::LEN]);
        assert_eq!(format!("{odd}"), r"\n".repeat(40));
    }
}
