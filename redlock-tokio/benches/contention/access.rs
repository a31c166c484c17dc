use std::fmt;

use serde::{Deserialize, Serialize};

/// The way in which a worker asks for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    Lock,
    /// Without a place in the line: it tries again as soon as it is refused.
    TryLock,
    /// All keys of a list that is separated by commas.
    LockAll,
    /// One of so many permits.
    Permit(usize),
    Read,
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.pad("lock"),
            Self::TryLock => f.pad("`try_lock` in a loop"),
            Self::LockAll => f.pad("lock of several keys"),
            Self::Read => f.pad("read"),
            Self::Write => f.pad("write"),
            Self::Permit(1) => f.pad("1 permit"),
            Self::Permit(permits) => f.pad(&format!("{permits} permits")),
        }
    }
}
