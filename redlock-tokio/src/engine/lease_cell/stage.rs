use redlock_core::{AcquireFailure, LossReason, ReleaseVerdict, Timestamp};

use super::held_lease::HeldLease;
use crate::{
    engine::{micros::Micros, queue::Refusal},
    random,
};

/// How far a lease has come.
///
/// ```text
/// Served <---- New ----> Acquiring ----> Held ----> Releasing
///    |          |            |             |            |
///    +----------+------------+--> Ended <--+------------+
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    /// Waits for its turn, or is about to begin it.
    New {
        /// If it waits, when the time to wait is over, or its keys may not be kept for another request any more.
        due: Option<Timestamp>,
    },
    /// Has the lock of another request, and its task does not know yet.
    Served(HeldLease),
    /// Asks the nodes.
    Acquiring,
    Held(Held),
    Releasing,
    Ended(End),
}

/// How the lock is held by its present holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// When the holder of this generation got the lock.
    pub(super) since: Timestamp,
    /// How long the attempt took by which the process got it.
    pub(super) attempt: Micros,
    pub(super) others: Others,
}

/// Whether other processes wait for a lock that the process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Unknown,
    /// The node of the line is asked.
    Asked,
    /// It is asked, the turn is over, and the last holder is gone: the answer decides who comes next.
    Decide,
    None,
    Wait,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The queue did not let it wait.
    Refused(Refusal),
    /// The operating system gave no random bits for its token.
    NoRandomness(random::Failure),
    Exhausted {
        failure: AcquireFailure,
        attempts: u32,
    },
    /// It was released before it had the lock, or its task has the lock of another request.
    GivenUp,
    /// It was given away, for another process to adopt.
    GivenAway,
    Lost(LossReason),
    Released(ReleaseVerdict),
}

impl Stage {
    /// Returns whether the lease has or awaits the turn for its keys.
    pub(super) const fn is_in_queue(&self) -> bool {
        self.is_pending() || matches!(self, Self::Held(_))
    }

    /// Returns whether a task that wants the lock has to wait.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self, Self::New { .. } | Self::Acquiring)
    }

    /// Returns whether a holder can see the end of this stage.
    pub(super) const fn is_seen_by_holder(&self) -> bool {
        matches!(self, Self::Held(_) | Self::Releasing)
    }
}
