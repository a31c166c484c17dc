use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{access::Access, contestants::Name};

/// A worker's instructions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) urls: Vec<String>,
    pub(crate) contestant: Name,
    pub(crate) key: String,
    pub(crate) access: Access,
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    pub(crate) stay: Stay,
}

/// A holder's behaviour while it holds the lock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Stay {
    /// Reads the clock all the time.
    Awake,
    /// Sleeps.
    Asleep,
}
