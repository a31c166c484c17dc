use std::{fmt, time::Duration};

use redlock_tokio::LockOptions;
use serde::{Deserialize, Serialize};

/// What this crate's lock is told about turns. What is not set is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policy {
    /// How long a process keeps the lock for itself.
    pub(crate) handover_for: Option<Duration>,
}

impl Policy {
    /// Those that are compared, in the order in which they take their turns.
    pub(crate) fn all() -> Vec<Self> {
        let turns = [None, Some(20), Some(100)];
        let policy = |millis: Option<u64>| Self {
            handover_for: millis.map(Duration::from_millis),
        };
        turns.map(policy).to_vec()
    }

    pub(crate) fn options(self) -> LockOptions {
        let mut options = LockOptions::new();
        if let Some(time) = self.handover_for {
            options = options.handover_for(time);
        }
        options
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handover_for {
            None => f.pad("default"),
            Some(time) => f.pad(&format!("turns of {} ms", time.as_millis())),
        }
    }
}
