use core::{fmt, time::Duration};

use crate::Timestamp;

macro_rules! hexadecimal_id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; Self::LEN]);

        impl $name {
            /// The number of digits.
            pub const LEN: usize = 40;

            /// Creates an id from the digits as the server says them.
            #[must_use]
            pub const fn new(digits: [u8; Self::LEN]) -> Self {
                Self(digits)
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
    /// What a server calls itself from its start to its end: Redis' `run_id`, 40 hexadecimal digits.
    RunId
}

hexadecimal_id! {
    /// What a server calls the history of its keys: Redis' `master_replid`, 40 hexadecimal digits. A
    /// replica has that of its master, and begins one of its own when it is promoted.
    ReplicationId
}

/// The history of a server's keys (`INFO replication`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replication {
    /// The history that the server writes now (`master_replid`).
    pub id: ReplicationId,
    /// The history that it has continued (`master_replid2`), or `None` if that is all zeros: then
    /// the server was not promoted since it came up.
    ///
    /// It is not zero after a promotion, after a restart from an RDB, and after the server was a
    /// replica for a while. Redis sets it back to zero when the server has had no replica for
    /// `repl-backlog-ttl`.
    pub continues: Option<ReplicationId>,
}

/// What is known of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// When the node was asked: read *before* the question left.
    pub asked_at: Timestamp,
    /// Which server it is.
    pub run_id: RunId,
    /// For how long it is up, in whole seconds; `None` if it does not tell.
    pub uptime: Option<Duration>,
    /// The history of its keys; `None` if it does not tell.
    pub replication: Option<Replication>,
    /// For how long its history is known to exist, by a [`HistoryMarker`](crate::HistoryMarker).
    /// `None` if nobody has looked, or there is no marker to be read.
    pub history_age: Option<Duration>,
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
