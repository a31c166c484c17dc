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
    /// When to extend; without it a lease ends with its first validity unless
    /// [`Lease::extend`](crate::Lease::extend) is called.
    pub keep_alive: Option<KeepAlive>,
}
