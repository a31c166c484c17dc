use crate::{FencingToken, NodeSet, Slot, SlotSet, Token, Ttl};

/// The id of a round, by which a reply finds the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId(pub(super) u32);

impl RoundId {
    /// The id for a request that no lease makes, such as one by which an operator deletes a key.
    pub const NO_LEASE: Self = Self(u32::MAX);
}

/// A request that the driver sends to several nodes, all at once.
///
/// The driver must send the requests of one lease to each node in the order in which it polled them. A
/// release must not overtake the acquisition that it undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Transmit {
    /// The id to give back with each reply.
    pub round: RoundId,
    /// The nodes to send it to.
    pub nodes: NodeSet,
    /// What to send.
    pub operation: Operation,
    /// Which key it is about, and who may have the key at the same time.
    pub access: Access,
    /// The slots of a semaphore that a [probe](Operation::Probe) is about. Empty if it is about something else.
    pub slots: SlotSet,
    /// Whether the replies decide what the lease does next: whether the lock is acquired, extended or
    /// released. A repair decides nothing, nor does the release after a failed attempt or a loss, nor a
    /// probe. An error that a node answers to such a request is no reason for how the lease ends.
    pub asks_for_votes: bool,
}

/// Which key a request is about, and who may have it at the same time.
///
/// On each node the key is absent, or it has one token, or it is *shared*: then readers have it, each with a token and
/// an expiry of its own. The key lives for as long as the last of them.
///
/// A driver that does not know a way of access must answer that the request was refused: new ones may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The key itself, or several keys. Nobody else may have it.
    Exclusive,
    /// As [`Exclusive`](Self::Exclusive), for a client that readers make way for. Its probes
    /// [mark](Operation::Probe::mark) the key. Its releases delete its mark.
    Writer,
    /// The key, which other readers may have too.
    ///
    /// - An acquisition adds the token, or raises its expiry, if the key is absent or shared. Otherwise, or if there is
    ///   a mark, the answer is [`Reply::Denied`](crate::Reply::Denied).
    /// - An extension raises the expiry of the token if the token is there and has not expired. If the token has the
    ///   key for itself, it becomes the first reader, and its mark is deleted.
    /// - A release removes the token, whether it is a reader's or has the key for itself. The key then lives for as
    ///   long as the last reader that is left.
    /// - A probe finds the key free if it is absent or shared, or [marked](crate::Reply::Marked) if there is a mark,
    ///   and otherwise taken.
    Reader {
        /// Whether to let the reader in in spite of a mark.
        insists: bool,
    },
    /// The key of one slot of a semaphore: `<key>:slot:<index>`.
    Slot(Slot),
    /// The keys of several slots of a semaphore. Only a [probe](Operation::Probe) is about several. The answer is
    /// [`Reply::Slots`](crate::Reply::Slots).
    Slots,
}

/// What a node is asked to do with the key of the lease.
///
/// A node that does not know an operation must refuse it ([`Reply::Refused`](crate::Reply::Refused)):
/// new ones may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Set the key to the token if it does not exist: `SET key token NX PX ttl`.
    ///
    /// With a fence, then raise the key's fencing counter to it, if the key still has the token, and remember the
    /// counter for [`COUNTER_LIFETIME`](FencingToken::COUNTER_LIFETIME) from then on. Compare and raise in one step. If
    /// the counter is no smaller than the fence, leave the counter, and answer [`Reply::Outbid`](crate::Reply::Outbid).
    ///
    /// Of several keys, set all or none, and count one that has the token already as free. If one of them is
    /// taken, answer [`Reply::Denied`](crate::Reply::Denied), and raise no counter of a key that lacks the token.
    ///
    /// While the lock is held, this goes to nodes that lack the key. The reply is not counted then.
    Acquire {
        /// The value to set.
        token: Token,
        /// The key's time to live.
        ttl: Ttl,
        /// The fence to raise the counter to.
        fence: Option<FencingToken>,
    },
    /// Set the key to the token, and let it live for the ttl, if its value is the giver's token: compare and set in one
    /// step. Otherwise, and if the key does not exist, answer [`Reply::Denied`](crate::Reply::Denied).
    ///
    /// With a fence, then raise the key's fencing counter, as for an acquisition.
    Adopt {
        /// The value to compare with: that of the client which has given the lock away.
        giver: Token,
        /// The value to set.
        token: Token,
        /// The key's time to live.
        ttl: Ttl,
        /// The fence to raise the counter to.
        fence: Option<FencingToken>,
    },
    /// If the key's value is the token, raise its fencing counter as for an acquisition.
    ///
    /// Of several keys, this concerns each on its own, and so do an extension and a release. The answer is
    /// [`Reply::Denied`](crate::Reply::Denied) unless all of them had the token. So a lock that has lost one of
    /// its keys on a node has no vote there. Its other keys are released with the lock, or expire with those on
    /// other nodes.
    ///
    /// While the lock is held, this goes to nodes that may have missed it before. The reply is not counted
    /// then.
    Fence {
        /// The value to compare with.
        token: Token,
        /// The fence to raise the counter to.
        fence: FencingToken,
    },
    /// Let the key live for `ttl` from now, if its value is the token and it would not live
    /// longer anyway.
    ///
    /// A ttl that is sent to a node is never shorter than the time for which the lock still relies on
    /// the key, as long as requests arrive in order. So a node may also set the time to live without
    /// regard to the old one.
    Extend {
        /// The value to compare with.
        token: Token,
        /// The key's new time to live.
        ttl: Ttl,
        /// Whether the key is to live no longer than for `ttl`, since the lock is to be
        /// [released](crate::Lease::release_at) then.
        shortens: bool,
    },
    /// Delete the key if its value is the token.
    Release {
        /// The value to compare with.
        token: Token,
    },
    /// Tell whether the key exists, with any value, and how long it lives: `MGET key` and `PTTL key`. The answer is
    /// [`Reply::Free`](crate::Reply::Free) or [`Reply::Taken`](crate::Reply::Taken).
    ///
    /// A node that can notify its clients also tells when the key is gone
    /// ([`Lease::handle_freed`](crate::Lease::handle_freed)).
    Probe {
        /// The token of the last attempt. It is not compared with the key.
        token: Token,
        /// For how long to mark the key, so that readers make way: `SET mark nonce PX ..`, whose value is the
        /// [nonce](Token::nonce) of the token. The mark is advice. It may be lost or late.
        mark: Option<Ttl>,
    },
}

impl Operation {
    /// Returns whether the operation can set the key to its token: an acquisition or an adoption.
    #[must_use]
    pub const fn sets_key(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Adopt { .. })
    }

    /// Returns the token of the operation. Of an adoption, this is the new one.
    #[must_use]
    pub const fn token(&self) -> Token {
        match *self {
            Self::Acquire { token, .. }
            | Self::Adopt { token, .. }
            | Self::Fence { token, .. }
            | Self::Extend { token, .. }
            | Self::Release { token }
            | Self::Probe { token, .. } => token,
        }
    }
}
