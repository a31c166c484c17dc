//! What the users of a process do with its `Redlock`.

use std::{sync::Arc, time::Duration};

use redlock_tokio::{LockError, LockGuard, Redlock};
use tokio::time::sleep;

use crate::{
    host::Host,
    ledger::{Ledger, RecordId},
    network::SharedNetwork,
    process::{Stage, Stages},
    rng::Rng,
    scale::Scale,
    seen::Seen,
};

/// A user, and what it needs.
pub(crate) struct User {
    pub(crate) redlock: Redlock,
    pub(crate) host: Arc<Host>,
    pub(crate) ledger: Ledger,
    pub(crate) network: SharedNetwork,
    pub(crate) scale: Scale,
    pub(crate) stages: Stages,
    pub(crate) rng: Rng,
}

/// A guard whose end is noted before it is dropped.
struct Noted {
    record: RecordId,
    ledger: Ledger,
    guard: LockGuard,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.ledger.end(self.record);
    }
}

impl User {
    /// Uses locks until the process ends.
    pub(crate) async fn run(mut self) {
        let mut is_served = false;
        while !self.stages.has_come(Stage::End) {
            self.pause(self.scale.think).await;
            let is_calm = self.stages.has_come(Stage::Calm);
            let has_lock = self.use_lock().await;
            if has_lock && is_calm && !is_served {
                is_served = true;
                self.note(Seen::ServedAfterFaults);
            }
        }
    }

    async fn use_lock(&mut self) -> bool {
        let key = format!("key-{}", self.rng.usize(..self.scale.keys));
        let ttl = self.scale.max_ttl / self.rng.u32(1..=3);
        let wait = Duration::from_nanos(self.rng.around(self.scale.max_ttl.as_nanos() as u64));
        match self.redlock.lock(key).ttl(ttl).wait(wait).await {
            Ok(guard) => {
                self.note(Seen::Acquired);
                let guard = Noted {
                    record: self.ledger.begin(&self.host, guard.hold()),
                    ledger: self.ledger.clone(),
                    guard,
                };
                self.pause(self.scale.work).await;
                let is_valid = guard.guard.is_valid();
                self.note(if is_valid { Seen::Released } else { Seen::Lost });
                true
            }
            Err(LockError::NoQuorum { .. }) => {
                self.note(Seen::NoQuorum);
                false
            }
            Err(_) => {
                self.note(Seen::TimedOut);
                false
            }
        }
    }

    async fn pause(&mut self, mean: Duration) {
        let pause = Duration::from_nanos(self.rng.around(mean.as_nanos() as u64));
        tokio::select! {
            biased;
            () = self.stages.come(Stage::End) => {}
            () = sleep(pause) => {}
        }
    }

    fn note(&self, what: Seen) {
        self.network.lock().seen.note(what);
    }
}
