use core::{fmt, time::Duration};

use crate::{AcquireFailure, FencingToken, NodeSet, ReleaseVerdict, Timestamp, Ttl};

/// A change that a [`Lease`](crate::Lease) reports to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The lock is held.
    Acquired {
        /// The end of validity, unless extended.
        valid_until: Timestamp,
        /// The fencing token, if one was asked for.
        fence: Option<FencingToken>,
        /// The nodes whose votes won the lock: a majority. Nodes that granted it later are not among them.
        granted_by: NodeSet,
    },
    /// The lock could not be acquired, and the lease makes no further attempt.
    Exhausted {
        /// How the last attempt failed.
        failure: AcquireFailure,
        /// How often the lock was [tried](crate::Lease::tries).
        tries: u32,
    },
    /// The [look](crate::Lease::look) of a lease that waits in a line has ended.
    Looked {
        /// Whether the key is free on a majority of the nodes.
        is_free: bool,
    },
    /// The lock is held for longer.
    Extended {
        /// The new end of validity.
        valid_until: Timestamp,
    },
    /// An extension failed. The lock is still held, and renewal tries again.
    ExtendFailed {
        /// The end of validity, unless a later extension succeeds.
        valid_until: Timestamp,
    },
    /// The lock is not held any more, although nobody released it.
    Lost(LossReason),
    /// The release of a held lock has ended.
    Released(ReleaseVerdict),
}

/// A fault in the time to live that a node has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpiryAnomaly {
    /// The node would have dropped the key before the end of validity. Its clock has stepped, another
    /// client has shortened the time to live, or the node has missed an extension.
    TooShort {
        /// How long the key has to live, from now to the end of validity.
        needed: Duration,
    },
    /// The node would have kept the key for longer than it was ever asked to. Its clock has stepped
    /// back, or another client has extended the key.
    TooLong {
        /// The longest time to live that it was asked for.
        longest: Ttl,
    },
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
