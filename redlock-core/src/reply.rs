use core::time::Duration;

use crate::{FencingToken, Slot, SlotSet, Timestamp};

/// The fate of a request to one node.
///
/// A driver says here what the node *did*. The [`Eligibility`](crate::Eligibility) that goes with the reply
/// says what the vote is worth, and the round decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reply {
    /// The node did it: it set, extended or deleted our key, or raised its fencing counter.
    Granted,
    /// The node holds our key, but did not raise its fencing counter, because the counter is no smaller
    /// than the proposal.
    Outbid {
        /// The node's counter.
        counter: FencingToken,
    },
    /// The node does not have the key. An answer to a probe.
    Free,
    /// The node has the key. An answer to a probe.
    Taken {
        /// When the key expires, unless it is extended or released.
        until: Timestamp,
    },
    /// The node would let a reader in, if a writer that waits had not marked the key. An answer to a probe.
    Marked {
        /// When the mark expires, unless the writer marks the key again.
        until: Timestamp,
    },
    /// Which slots of a semaphore the node has. An answer to a probe of several slots.
    Slots {
        /// The slots that were probed and are free.
        free: SlotSet,
        /// Those that are taken.
        taken: SlotSet,
        /// The one of these that expires first.
        next: Slot,
        /// When that slot expires, unless it is extended or released. [`Timestamp::MAX`] if no slot is taken.
        until: Timestamp,
    },
    /// The node did not do it, because of the key: another token has it, or ours is gone.
    Denied,
    /// The node did not do it, because of itself: the node answered with an error (out of memory, loading,
    /// read-only, an operation that it does not know), or the request never left.
    Refused,
    /// The answer is late, or the connection broke. The node *may have done it*, or may still do it.
    Unknown,
}

impl Reply {
    /// Returns the reply of a node that said at `now` that the key lives for `remaining`, in whole
    /// milliseconds as `PTTL` does.
    ///
    /// The node may have dropped a part of a millisecond, so the key may live for one longer.
    ///
    /// ```
    /// use core::time::Duration;
    /// use redlock_core::{Reply, Timestamp};
    ///
    /// let now = Timestamp::ZERO;
    /// let until = now.saturating_add(Duration::from_millis(701));
    /// let reply = Reply::taken_for(now, Duration::from_millis(700));
    /// assert_eq!(reply, Reply::Taken { until });
    /// ```
    #[must_use]
    pub fn taken_for(now: Timestamp, remaining: Duration) -> Self {
        Self::Taken {
            until: end_of(now, remaining),
        }
    }

    /// Returns the reply of a node that said at `now` that the mark of a writer lives for `remaining`, and that the key
    /// is free or shared. Rounds up as [`taken_for`](Self::taken_for) does.
    #[must_use]
    pub fn marked_for(now: Timestamp, remaining: Duration) -> Self {
        Self::Marked {
            until: end_of(now, remaining),
        }
    }

    /// Returns the reply of a node that said at `now` which slots of a semaphore are free and which are taken, and for
    /// how long the first of these still lives. [`Duration::MAX`] if there is none, or if none of them has an end.
    ///
    /// ```
    /// use core::time::Duration;
    /// use redlock_core::{Reply, Slot, SlotSet, Timestamp};
    ///
    /// let [first, second] = [0, 1].map(|index| Slot::new(index).expect("below 128"));
    /// let [free, taken] = [first, second].map(|slot| SlotSet::from_iter([slot]));
    /// let reply = Reply::slots(free, taken, second, Timestamp::ZERO, Duration::from_millis(700));
    /// let Reply::Slots { until, .. } = reply else { unreachable!() };
    /// assert_eq!(until, Timestamp::ZERO.saturating_add(Duration::from_millis(701)));
    /// ```
    #[must_use]
    pub fn slots(
        free: SlotSet,
        taken: SlotSet,
        next: Slot,
        now: Timestamp,
        remaining: Duration,
    ) -> Self {
        Self::Slots {
            free,
            taken,
            next,
            until: end_of(now, remaining),
        }
    }
}

fn end_of(now: Timestamp, remaining: Duration) -> Timestamp {
    now.saturating_add(remaining.saturating_add(Duration::from_millis(1)))
}
