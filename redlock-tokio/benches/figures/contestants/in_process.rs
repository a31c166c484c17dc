use std::sync::Arc;

use tokio::sync::{
    Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore,
};

use super::{Access, Contestant};
use crate::Result;

/// Tokio's own locks: the floor for tasks of one process. There is one key.
#[derive(Clone)]
pub(crate) enum InProcess {
    Lock(Arc<Mutex<()>>),
    Permit(Arc<Semaphore>),
    Read(Arc<RwLock<()>>),
}

#[expect(dead_code, reason = "a guard is dropped and not looked at")]
pub(crate) enum Held {
    Lock(OwnedMutexGuard<()>),
    Permit(OwnedSemaphorePermit),
    Read(OwnedRwLockReadGuard<()>),
}

/// Lets everybody in at once: if even its holds do not overlap, the check is not worth anything.
#[derive(Clone)]
pub(crate) struct NoLock;

impl Contestant for InProcess {
    type Held = Held;

    async fn connect(_urls: &[String], access: Access) -> Result<Self> {
        match access {
            Access::Lock => Ok(Self::Lock(Arc::default())),
            Access::Permit(permits) => Ok(Self::Permit(Arc::new(Semaphore::new(permits)))),
            Access::Read => Ok(Self::Read(Arc::default())),
            _ => Err("not measured".into()),
        }
    }

    async fn acquire(&self, _key: &str) -> Result<Held> {
        Ok(match self {
            Self::Lock(mutex) => Held::Lock(Arc::clone(mutex).lock_owned().await),
            Self::Permit(permits) => Held::Permit(Arc::clone(permits).acquire_owned().await?),
            Self::Read(lock) => Held::Read(Arc::clone(lock).read_owned().await),
        })
    }

    async fn release(&self, _key: &str, held: Held) -> Result<()> {
        drop(held);
        Ok(())
    }
}

impl Contestant for NoLock {
    type Held = ();

    async fn connect(_urls: &[String], _access: Access) -> Result<Self> {
        Ok(Self)
    }

    async fn acquire(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _key: &str, (): ()) -> Result<()> {
        Ok(())
    }
}
