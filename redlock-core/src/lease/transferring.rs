//! From one client to another: a held lock is given away, and adopted.

use super::{Access, End, Lease, State, proposals::Proposals, retrying::RetryState};
#[cfg(doc)]
use super::{Event, Operation};
use crate::{FencingToken, SlotSet, Timestamp, Token};

/// A lock that another client has given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Adoption {
    pub(super) giver: Token,
    /// The end of the giver's validity. No other client can hold the lock before.
    pub(super) until: Timestamp,
}

impl Lease {
    /// Ends a held lock without a release, for another client to [adopt](Self::adopt). Returns the end of validity, or
    /// `None` if the lock is not held, or cannot be given away: a permit, the lock of a reader, one of several keys,
    /// and one that is to be [released later](Self::release_at).
    ///
    /// From now on this client does not hold the lock, and sends no request for it any more. If nobody adopts the lock,
    /// it ends with the ttl of its keys. Requests that were sent before may still arrive. They compare with the old
    /// [token](Self::token), or set it where no key is.
    ///
    /// Costs nothing. Extend the lock first if the other client needs more time than is left.
    pub fn give(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.expire(now);
        let State::Held(held) = &self.state else {
            return None;
        };
        let valid_until = held.valid_until;
        if !self.has_one_owner() || held.has_no_holder() {
            return None;
        }
        self.end(End::GivenAway);
        Some(valid_until)
    }

    /// Starts to adopt the lock that another client has [given away](Self::give) under this token. Changes nothing
    /// unless the lease is new, and of one key that nobody else may have.
    ///
    /// Makes one attempt, which replaces the giver's token by a new one ([`Operation::Adopt`]). So of several clients
    /// that adopt the same lock, only one can have a majority. The attempt succeeds only before `until`, the end of the
    /// giver's validity by the clock of this client. So no other client can have held the lock in between. The new
    /// validity counts from `now`, as for an acquisition.
    ///
    /// With a `proposal`, the lock gets a fencing token, as by [`acquire_fenced`](Self::acquire_fenced). Propose more
    /// than the giver's token.
    ///
    /// The answer is [`Event::Acquired`] or [`End::Exhausted`]. After a failure, the nodes that had agreed are
    /// released. They do not get the giver's token back. So another attempt by a new lease can succeed only if a
    /// majority still has that token.
    ///
    /// If the driver lets messages overtake each other, as when a connection breaks before the answer, a late request
    /// of the giver may bring its token back to a node. Then a second client may adopt the lock after the first has
    /// released it. It never does so while the first holds the lock.
    ///
    /// Costs one round, and one more for the release after a failure.
    pub fn adopt(
        &mut self,
        now: Timestamp,
        giver: Token,
        until: Timestamp,
        proposal: Option<FencingToken>,
    ) {
        if !matches!(self.state, State::Idle { .. }) || !self.has_one_owner() {
            return;
        }
        self.proposals = proposal.map(|proposal| Proposals::new(proposal, now).into());
        let retry = RetryState {
            adopts: Some(Adoption { giver, until }),
            ..RetryState::new(until)
        };
        self.attempt(now, retry, SlotSet::EMPTY);
    }

    /// Returns whether the lock has one key, which nobody else may have.
    pub(super) fn has_one_owner(&self) -> bool {
        let is_alone = matches!(self.outbox.access(), Access::Exclusive | Access::Writer);
        is_alone && !self.has_several_keys
    }
}
