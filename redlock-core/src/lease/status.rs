use core::fmt;

use crate::{AcquireFailure, ReleaseVerdict};

/// How far a [`Lease`](crate::Lease) has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nobody has asked for the lock yet.
    New,
    /// It tries to get the lock, or waits before it tries again.
    Asking,
    /// The lock is held, or is to be [released later](crate::Lease::release_at). Its validity may have ended
    /// since the last input: ask for [the end of validity](crate::Lease::valid_until).
    Held,
    /// A lock that was held is being released.
    Releasing,
    /// It has ended. Only requests and events that are already queued can still be polled.
    Ended(End),
}

/// How a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The lock could not be acquired, and the lease makes no further attempt.
    Exhausted {
        /// How the last attempt failed.
        failure: AcquireFailure,
        /// How often the lock was [tried](crate::Lease::tries).
        tries: u32,
    },
    /// It was released before the lock was held.
    GivenUp,
    /// The lock was [given away](crate::Lease::give), for another client to adopt.
    GivenAway,
    /// The lock was lost: nobody released it.
    Lost(LossReason),
    /// The lock was released.
    Released(ReleaseVerdict),
}

/// The reason why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The validity ended before an extension succeeded.
    Expired,
    /// The validity ended after renewal had ended, because the lock was held for the longest time that
    /// [`KeepAlive`](crate::KeepAlive) allows.
    MaxHold,
    /// So many nodes have lost our key that no majority is left.
    KeysLost,
    /// A node that was needed for the majority turned out to be another server than before, such as
    /// a replica that was promoted. It may not know of the locks that the first one knew.
    VotesWithdrawn,
    /// The driver has ended, so nothing could renew the lock.
    Abandoned,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended before it could be extended",
            Self::MaxHold => "it was held for the longest time allowed",
            Self::KeysLost => "its keys were deleted or overwritten on a majority of nodes",
            Self::VotesWithdrawn => {
                "a node whose vote it needed was replaced by a server that may have forgotten locks"
            }
            Self::Abandoned => "nobody was left to renew it",
        })
    }
}
