use std::time::Duration;

use redlock_tokio::{LockGuard, Redlock, ReleaseOutcome};

use crate::{Result, contestant::Contestant};

/// Longer than any cell is measured.
const WAIT: Duration = Duration::from_secs(60);

/// This crate's lock, with default settings except for how long it waits. Both `lock` and `release`
/// wait for the majority.
#[derive(Clone)]
pub(crate) struct Ours(Redlock);

impl Contestant for Ours {
    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        let builder = Redlock::builder().nodes(urls).trust_fresh_nodes();
        Ok(Self(builder.build().await?))
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.lock(key).wait(WAIT).await?)
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        let report = guard.release().await;
        match report.outcome {
            ReleaseOutcome::Released | ReleaseOutcome::HandedOver => Ok(()),
            _ => Err(format!("{report:?}").into()),
        }
    }
}
