use std::{sync::Arc, time::Duration};

use redlock_tokio::{Durability, LockError, LockGuard, Redlock, ReleaseOutcome};

use super::{Access, Contestant};
use crate::Result;

/// Longer than anything is measured.
const WAIT: Duration = Duration::from_secs(60);

/// The time to live of a leadership.
pub(crate) const LEADERSHIP: Duration = Duration::from_secs(3);

/// This crate's lock, with default settings except for how long it waits. Both `lock` and `release`
/// wait for the majority.
#[derive(Clone)]
pub(crate) struct Ours {
    redlock: Redlock,
    access: Access,
}

/// The same lock, whose guards are dropped: the release is handed over, and nobody waits for it.
#[derive(Clone)]
pub(crate) struct Dropped(Ours);

/// The same, with a client of its own for each lock, as by programs that need it once. To connect is part of the wait.
#[derive(Clone)]
pub(crate) struct Newcomers(Arc<[String]>, Access);

impl Contestant for Ours {
    type Held = LockGuard;

    async fn connect(urls: &[String], access: Access) -> Result<Self> {
        let parameters = match access {
            Access::OverResp2 => "?protocol=resp2",
            _ => "",
        };
        let urls = urls.iter().map(|url| format!("{url}{parameters}"));
        let builder = Redlock::builder().nodes(urls).wait(WAIT);
        let builder = builder.durability(Durability::AssumedForTests);
        Ok(Self {
            redlock: builder.build().await?,
            access,
        })
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        let redlock = &self.redlock;
        Ok(match self.access {
            Access::Lock | Access::OverResp2 => redlock.lock(key).await?,
            Access::TryLock => loop {
                match redlock.try_lock(key).await {
                    Err(LockError::Contended(_)) => {}
                    answer => break answer?,
                }
            },
            Access::Permit(permits) => redlock.semaphore(key, permits).acquire().await?,
            Access::Read => redlock.rw_lock(key).read().await?,
            Access::Write => redlock.rw_lock(key).write().await?,
            Access::Lead => redlock.lock(key).ttl(LEADERSHIP).await?,
            Access::Both => {
                redlock
                    .lock_all([0, 1].map(|it| format!("{key}:{it}")))
                    .await?
            }
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

impl Contestant for Dropped {
    type Held = LockGuard;

    async fn connect(urls: &[String], access: Access) -> Result<Self> {
        Ours::connect(urls, access).await.map(Self)
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        self.0.acquire(key).await
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        drop(guard);
        Ok(())
    }
}

impl Contestant for Newcomers {
    type Held = (Ours, LockGuard);

    async fn connect(urls: &[String], access: Access) -> Result<Self> {
        Ok(Self(urls.into(), access))
    }

    async fn acquire(&self, key: &str) -> Result<Self::Held> {
        let ours = Ours::connect(&self.0, self.1).await?;
        let guard = ours.acquire(key).await?;
        Ok((ours, guard))
    }

    async fn release(&self, key: &str, (ours, guard): Self::Held) -> Result<()> {
        ours.release(key, guard).await
    }
}
