use core::fmt;

use crate::{AcquireFailure, FencingToken, NodeSet, ReleaseVerdict, Timestamp};

/// Something the holder of a [`Lease`](crate::Lease) wants to know.
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
    /// The lock could not be acquired, and will not be tried again.
    Exhausted {
        /// How the last attempt failed.
        failure: AcquireFailure,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The lock is held for longer.
    Extended {
        /// The new end of validity.
        valid_until: Timestamp,
    },
    /// An extension failed; the lock is still held, and the extension will be tried again.
    ExtendFailed {
        /// The end of validity, unless a later extension succeeds.
        valid_until: Timestamp,
    },
    /// The lock is not held any more, without having been released.
    Lost(LossReason),
    /// The release that was asked for has ended.
    Released(ReleaseVerdict),
}

/// How a holder stands with its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The lock is held, and nothing is wrong.
    Held {
        /// The end of validity, unless extended.
        valid_until: Timestamp,
    },
    /// The lock is held, but the last extension failed: if none succeeds, it ends then.
    Uncertain {
        /// The end of validity, unless extended.
        valid_until: Timestamp,
    },
    /// The lock is not held: not yet, or not any more.
    NotHeld,
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The validity ended before an extension succeeded.
    Expired,
    /// The validity ended after renewal had reached its limit.
    MaxHold,
    /// A majority of nodes said that the key is not ours any more.
    KeysLost,
    /// A node that was needed for the majority turned out to be another server than before, such as
    /// a replica that was promoted. It may not know of the locks that the first one knew.
    VotesWithdrawn,
    /// The driver ended, so that nobody could renew the lock.
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
