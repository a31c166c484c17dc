use std::{sync::Arc, time::Duration};

use deadpool_redis::{Config, Runtime};
use redlock_tokio::{Durability, LockError, LockGuard, Redlock, RedlockBuilder, ReleaseOutcome};

use crate::{Result, access::Access, contestant::Contestant};

/// Longer than any cell is measured.
const WAIT: Duration = Duration::from_secs(60);

/// This crate's lock, with default settings except for how long it waits. Both `lock` and `release`
/// wait for the majority.
#[derive(Clone)]
pub(crate) struct Ours {
    redlock: Redlock,
    access: Access,
}

/// The same, with a client of its own for each lock, as by programs that need it once. To connect is part of the wait.
#[derive(Clone)]
pub(crate) struct Newcomers(Arc<[String]>);

/// The same over pools of our own, on which no server sends messages.
#[derive(Clone)]
pub(crate) struct OverPools(Ours);

impl Ours {
    async fn build(builder: RedlockBuilder) -> Result<Self> {
        let builder = builder.wait(WAIT).durability(Durability::AssumedForTests);
        Ok(Self {
            redlock: builder.build().await?,
            access: Access::Lock,
        })
    }
}

impl Contestant for Ours {
    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        Self::build(Redlock::builder().nodes(urls)).await
    }

    fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        let redlock = &self.redlock;
        Ok(match self.access {
            Access::Lock => redlock.lock(key).await?,
            Access::TryLock => loop {
                match redlock.try_lock(key).await {
                    Err(LockError::Contended(_)) => {}
                    answer => break answer?,
                }
            },
            Access::LockAll => redlock.lock_all(key.split(',')).await?,
            Access::Permit(permits) => redlock.semaphore(key, permits).acquire().await?,
            Access::Read => redlock.rw_lock(key).read().await?,
            Access::Write => redlock.rw_lock(key).write().await?,
        })
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        let report = guard.release().await;
        match report.outcome {
            ReleaseOutcome::Released | ReleaseOutcome::HandedOver => Ok(()),
            _ => Err(format!("{report:?}").into()),
        }
    }
}

impl Contestant for Newcomers {
    type Held = (Ours, LockGuard);

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(urls.into()))
    }

    async fn acquire(&self, key: &str) -> Result<Self::Held> {
        let ours = Ours::connect(&self.0).await?;
        let guard = ours.acquire(key).await?;
        Ok((ours, guard))
    }

    async fn release(&self, key: &str, (ours, guard): Self::Held) -> Result<()> {
        ours.release(key, guard).await
    }
}

impl Contestant for OverPools {
    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        let mut builder = Redlock::builder();
        for url in urls {
            let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1))?;
            builder = builder.pool(url, pool, None);
        }
        Ok(Self(Ours::build(builder).await?))
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        self.0.acquire(key).await
    }

    async fn release(&self, key: &str, guard: LockGuard) -> Result<()> {
        self.0.release(key, guard).await
    }
}
