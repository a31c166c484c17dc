use std::time::Duration;

use redlock_core::{AcquireFailure, LossReason, ReleaseVerdict, Timestamp};

use super::held_lease::HeldLease;
use crate::engine::queue::Refusal;

/// How far a lease has come.
///
/// ```text
/// Queued ---------> Acquiring ---------> Held ---------> Releasing
///   |  \                |                 |                  |
///   |   HandedOver      |                 |                  |
///   |       |           |                 |                  |
///   +-------+-----------+----> Ended <----+------------------+
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    /// Waits for other leases of this process.
    Queued(Queued),
    /// Asks the nodes.
    Acquiring {
        /// Whether other processes could go first.
        after_pause: bool,
    },
    Held(Held),
    /// Waited for this lease, and was handed its lock. The task that waits has not taken it yet.
    HandedOver(HeldLease),
    Releasing,
    Ended(End),
}

#[derive(Debug)]
pub(super) struct Queued {
    /// When the time to wait is over.
    pub(super) deadline: Timestamp,
    /// When the reservation of the keys expires, if it keeps another waiter from a free key.
    pub(super) expires_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// When the holder of this generation got the lock.
    pub(super) since: Timestamp,
    /// How long this turn of the process may last, if not as long as usual.
    pub(super) turn: Option<Duration>,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The queue did not let it wait.
    Refused(Refusal),
    /// The task that waited has the lock of another lease.
    TookOver,
    Exhausted {
        failure: AcquireFailure,
        attempts: u32,
    },
    /// It was released before it had the lock.
    GivenUp,
    Lost(LossReason),
    Released(ReleaseVerdict),
}

impl Stage {
    /// Returns whether the lease has a place in the queues of its keys.
    pub(super) const fn is_in_queue(&self) -> bool {
        matches!(
            self,
            Self::Queued(_) | Self::Acquiring { .. } | Self::Held(_)
        )
    }

    /// Returns whether a task that wants the lock has to wait.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self, Self::Queued(_) | Self::Acquiring { .. })
    }

    /// Returns whether a holder can see the end of this stage.
    pub(super) const fn is_seen_by_holder(&self) -> bool {
        matches!(self, Self::Held(_) | Self::Releasing)
    }
}
