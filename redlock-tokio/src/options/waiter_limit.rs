use std::fmt;

/// A limit on the requests that wait in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaiterLimit {
    /// [`max_waiters_per_key`](crate::LockOptions::max_waiters_per_key).
    PerKey,
    /// `max_waiters_total` of the [`Redlock`](crate::RedlockBuilder::max_waiters_total), or of a layer.
    Total,
}

impl fmt::Display for WaiterLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PerKey => "for the key (max_waiters_per_key)",
            Self::Total => "for any key (max_waiters_total)",
        })
    }
}
