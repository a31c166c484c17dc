use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{contestants::Name, policy::Policy};

/// A worker's instructions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) urls: Vec<String>,
    pub(crate) contestant: Name,
    pub(crate) policy: Policy,
    pub(crate) key: String,
    pub(crate) access: Access,
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    pub(crate) stay: Stay,
}

/// What a worker wants of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    Lock,
    /// One of so many permits.
    Permit(usize),
    Read,
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.pad("lock"),
            Self::Read => f.pad("read"),
            Self::Write => f.pad("write"),
            Self::Permit(1) => f.pad("1 permit"),
            Self::Permit(permits) => f.pad(&format!("{permits} permits")),
        }
    }
}

/// A holder's behaviour while it holds the lock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Stay {
    /// Reads the clock all the time.
    Awake,
    /// Sleeps.
    Asleep,
}
