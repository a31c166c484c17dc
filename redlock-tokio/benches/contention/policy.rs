use std::{fmt, time::Duration};

use redlock_tokio::{LockOptions, RedlockBuilder};
use serde::{Deserialize, Serialize};

/// How this crate's lock takes turns. `None` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policy {
    /// How long a process keeps the lock for itself.
    pub(crate) handover_for: Option<Duration>,
    /// The share of the time that the lock leaves to clients that poll, in percent.
    pub(crate) poller_share: Option<u8>,
    pub(crate) never_hands_over: bool,
    pub(crate) is_fenced: bool,
}

impl Policy {
    pub(crate) fn configure(self, mut builder: RedlockBuilder) -> RedlockBuilder {
        if let Some(time) = self.handover_for {
            builder = builder.handover_for(time);
        }
        if let Some(percent) = self.poller_share {
            builder = builder.poller_share(percent);
        }
        if self.never_hands_over {
            builder = builder.options(LockOptions::new().no_handover());
        }
        if self.is_fenced {
            builder = builder.fenced();
        }
        builder
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(time) = self.handover_for {
            words.push(format!("turns of {} ms", time.as_millis()));
        }
        if let Some(percent) = self.poller_share {
            words.push(format!("{percent} % for pollers"));
        }
        if self.never_hands_over {
            words.push("no handover".to_owned());
        }
        if self.is_fenced {
            words.push("fenced".to_owned());
        }
        if words.is_empty() {
            words.push("default".to_owned());
        }
        f.pad(&words.join(", "))
    }
}
