use crate::{KeepAlive, Quorum, RetrySchedule, Validity};

/// What a [`Lease`](crate::Lease) needs to know, each part validated by its own constructor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseConfig {
    /// How many of how many nodes decide.
    pub quorum: Quorum,
    /// How long keys live, and for how long a holder trusts them.
    pub validity: Validity,
    /// When to try again.
    pub retry: RetrySchedule,
    /// When to extend, and for how long.
    pub keep_alive: KeepAlive,
}
