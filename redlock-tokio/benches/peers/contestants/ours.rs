use redlock_tokio::{Durability, LockGuard, Redlock, ReleaseOutcome};

use crate::{Result, contestant::Contestant};

/// This crate's lock, with default settings. Both `lock` and `release` wait for the majority.
#[derive(Clone)]
pub(crate) struct Ours(Redlock);

impl Contestant for Ours {
    const NAME: &'static str = "redlock-tokio";

    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(
            Redlock::builder()
                .nodes(urls)
                .durability(Durability::AssumedForTests)
                .build()
                .await?,
        ))
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.lock(key).await?)
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        let report = guard.release().await;
        match report.outcome {
            ReleaseOutcome::Released => Ok(()),
            _ => Err(format!("{report:?}").into()),
        }
    }
}

/// The same lock, whose guards are dropped: the release is handed over, and nobody waits for it.
#[derive(Clone)]
pub(crate) struct Dropped(Ours);

impl From<Ours> for Dropped {
    fn from(ours: Ours) -> Self {
        Self(ours)
    }
}

impl Contestant for Dropped {
    const NAME: &'static str = "redlock-tokio, guard dropped";

    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ours::connect(urls).await.map(Self)
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        self.0.acquire(key).await
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        drop(guard);
        Ok(())
    }
}
