use redlock_core::Timestamp;

use crate::options::{QueuePolicy, WaiterLimit};

/// How a request joined the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinOutcome {
    /// It has the turn at once.
    Turn {
        /// Whether to let other processes go first.
        backs_off: bool,
    },
    Waiting {
        /// When to [give turns](super::Queue::advance) again.
        look_at: Option<Timestamp>,
    },
}

/// Why a request may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no time to wait.
    Busy,
    /// Too many wait already.
    Full {
        waiting: usize,
        limit: usize,
        limited_by: WaiterLimit,
    },
}

/// The waiter that gets a lock from its holder without a request to the nodes, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Succession<T> {
    /// This waiter, which is removed from the queue.
    Next {
        waiter: T,
        /// Whether the streak of this process will be over soon.
        is_late: bool,
    },
    /// The next waiter would, but the streak of this process is over.
    StreakIsOver,
    Nobody,
}

#[cfg(test)]
impl<T> Succession<T> {
    pub(super) fn next(self) -> Option<T> {
        match self {
            Self::Next { waiter, .. } => Some(waiter),
            Self::StreakIsOver | Self::Nobody => None,
        }
    }
}

/// To be done after a change, outside the lock of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp<T> {
    /// Let this waiter begin: it has the turn.
    StartTurn {
        waiter: T,
        /// Whether to let other processes go first.
        backs_off: bool,
    },
    /// [Give turns](super::Queue::advance) for the keys of this waiter at that time.
    LookAgain { waiter: T, at: Timestamp },
}

/// Returns why one more cannot wait, if so many wait for its keys and for any key.
pub(super) fn admit(
    of_keys: impl Iterator<Item = usize>,
    total: usize,
    max_total: usize,
    policy: &QueuePolicy,
) -> Result<(), Refusal> {
    if policy.wait.is_zero() {
        return Err(Refusal::Busy);
    }
    let per_key = policy.max_waiters_per_key;
    let of_keys = of_keys.map(|waiting| (waiting, per_key, WaiterLimit::PerKey));
    for (waiting, limit, limited_by) in of_keys.chain([(total, max_total, WaiterLimit::Total)]) {
        if waiting >= limit {
            return Err(Refusal::Full {
                waiting,
                limit,
                limited_by,
            });
        }
    }
    Ok(())
}
