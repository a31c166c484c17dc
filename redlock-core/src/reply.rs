use core::time::Duration;

use crate::{FencingToken, Timestamp};

/// What became of a request to one node, as far as the algorithm cares.
///
/// A driver says here what the node *did*. What that is worth is said by the
/// [`Eligibility`](crate::Eligibility) that goes with it, and decided by the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reply {
    /// The node did it: it set, extended or deleted our key, or raised its fencing counter.
    Granted,
    /// The node holds our key, but did not raise its fencing counter, which is no smaller than what
    /// was proposed.
    Outbid {
        /// The node's counter.
        counter: FencingToken,
    },
    /// The node does not have the key: the answer to a look that finds it so.
    Free,
    /// The node has the key: the answer to a look.
    Taken {
        /// When it expires, unless it is extended or released.
        until: Timestamp,
    },
    /// The node did not, because of the key: it is another's, or no longer ours.
    Denied,
    /// The node did not, because of itself: it answered with an error (out of memory, loading,
    /// read-only ...), or the request never left.
    Refused,
    /// Nobody knows: the answer is late, or the connection broke. The request *may have happened*,
    /// or may still happen.
    Unknown,
}

impl Reply {
    /// Returns the reply of a node that said at `now` that the key lives for `remaining`, in whole
    /// milliseconds as `PTTL` does.
    ///
    /// The node may have dropped a part of a millisecond, so the key may live for one longer.
    #[must_use]
    pub fn taken_for(now: Timestamp, remaining: Duration) -> Self {
        let remaining = remaining.saturating_add(Duration::from_millis(1));
        Self::Taken {
            until: now.saturating_add(remaining),
        }
    }
}
