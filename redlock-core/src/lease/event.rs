use core::time::Duration;

use crate::{FencingToken, NodeSet, Timestamp, Ttl};

/// A change that a [`Lease`](crate::Lease) reports to its holder. Its end is a [`Status`](crate::Status).
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
    /// A check of a lock that is to be [released later](crate::Lease::release_at) has ended. After the first one, the nodes that
    /// have answered keep the keys for no longer than that.
    Checked,
    /// An extension failed. The lock is still held, and renewal tries again.
    ExtendFailed {
        /// The end of validity, unless a later extension succeeds.
        valid_until: Timestamp,
    },
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
