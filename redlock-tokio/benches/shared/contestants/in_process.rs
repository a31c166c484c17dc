use std::sync::Arc;

use tokio::sync::{
    Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit,
    RwLock, Semaphore,
};

use super::{Access, Contestant};
use crate::Result;

/// Tokio's own locks: the floor for tasks of one process. There is one key.
#[derive(Clone)]
pub(crate) enum InProcess {
    Lock(Arc<Mutex<()>>),
    Permit(Arc<Semaphore>),
    Read(Arc<RwLock<()>>),
    Write(Arc<RwLock<()>>),
}

pub(crate) enum Held {
    Lock(OwnedMutexGuard<()>),
    Permit(OwnedSemaphorePermit),
    Read(OwnedRwLockReadGuard<()>),
    Write(OwnedRwLockWriteGuard<()>),
}

/// Lets everybody in at once: if even its holds do not overlap, the check is not worth anything.
#[derive(Clone)]
pub(crate) struct NoLock;

impl Contestant for InProcess {
    const NAME: &'static str = "tokio::sync";

    type Held = Held;

    async fn connect(_urls: &[String]) -> Result<Self> {
        Ok(Self::Lock(Arc::default()))
    }

    fn with_access(self, access: Access) -> Self {
        match access {
            Access::Lock | Access::TryLock => self,
            Access::Permit(permits) => Self::Permit(Arc::new(Semaphore::new(permits))),
            Access::Read => Self::Read(Arc::default()),
            Access::Write => Self::Write(Arc::default()),
        }
    }

    async fn acquire(&self, _key: &str) -> Result<Held> {
        Ok(match self {
            Self::Lock(mutex) => Held::Lock(Arc::clone(mutex).lock_owned().await),
            Self::Permit(permits) => Held::Permit(Arc::clone(permits).acquire_owned().await?),
            Self::Read(lock) => Held::Read(Arc::clone(lock).read_owned().await),
            Self::Write(lock) => Held::Write(Arc::clone(lock).write_owned().await),
        })
    }

    async fn release(&self, _key: &str, held: Held) -> Result<()> {
        drop(held);
        Ok(())
    }
}

impl Contestant for NoLock {
    const NAME: &'static str = "no lock";

    type Held = ();

    async fn connect(_urls: &[String]) -> Result<Self> {
        Ok(Self)
    }

    async fn acquire(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _key: &str, (): ()) -> Result<()> {
        Ok(())
    }
}
