use crate::{NodeSet, Token, Ttl};

/// Tells the replies to one transmission from those to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId(pub(super) u32);

/// A request that the driver sends to several nodes, all at once.
///
/// To each node, requests of one lease must be sent in the order in which they were polled; a
/// release must not overtake the acquisition that it undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// Goes back with each reply.
    pub round: RoundId,
    /// Where to send it.
    pub nodes: NodeSet,
    /// What to send.
    pub operation: Operation,
}

/// What a node is asked to do with the lease's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Set the key to the token if it does not exist: `SET key token NX PX ttl`.
    Acquire {
        /// The value to set.
        token: Token,
        /// The key's time to live.
        ttl: Ttl,
    },
    /// Let the key live for `ttl` from now, if its value is the token and it would not live
    /// longer anyway.
    Extend {
        /// The value to compare with.
        token: Token,
        /// The key's new time to live.
        ttl: Ttl,
    },
    /// Delete the key if its value is the token.
    Release {
        /// The value to compare with.
        token: Token,
    },
}
