use redlock_core::{End, Timestamp};

use super::{RequestId, held_lease::Generation};
use crate::{
    engine::{micros::Micros, queue::Refusal},
    random,
};

/// The state of a lease that only its process knows. The [status](redlock_core::Status) of the lease itself says how far it has
/// come.
#[derive(Debug, Default)]
pub(super) enum Local {
    #[default]
    Nothing,
    /// It is new, and waits for its turn. Then the time to wait is over, or its keys may not be kept for another
    /// request any more.
    Waits { due: Timestamp },
    /// It was given up for the lock of another request, and its task does not know yet.
    Served((RequestId, Generation)),
    /// It was given up, since it has waited for its turn for too long.
    WaitIsOver,
    /// It was given up, since the operating system gave no random bits for its token.
    NoRandomness(random::Failure),
    /// It has the lock, or had it.
    Held(Held),
}

/// How the lock is held by its present holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// When the holder of this generation got the lock.
    pub(super) since: Timestamp,
    /// How long the attempt took by which the process got it.
    pub(super) attempt: Micros,
    pub(super) others: Others,
    /// Whether the process has stood in line for it. Then it calls the next process when it releases the lock.
    pub(super) has_stood: bool,
}

/// Whether other processes wait for a lock that the process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Unknown,
    /// The node of the line is asked.
    Asked,
    /// It is asked, the streak is over, and the last holder is gone: the answer decides who comes next.
    Decide,
    None,
    Wait,
}

/// How a request ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// The queue did not let it wait, or not for any longer.
    Refused(Refusal),
    /// The operating system gave no random bits for its token.
    NoRandomness(random::Failure),
    /// Its lease has ended, or is being released.
    Ended(End),
}
