use ::rslock::{LockGuard, LockManager};

use super::{Access, Contestant, TTL, client};
use crate::Result;

/// The [rslock](::rslock) crate, with its own settings, except that Nagle's algorithm is off. Its
/// `acquire` tries until it succeeds; all that it does waits for all nodes. It opens its connections at the first lock.
#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Contestant for Rslock {
    type Held = LockGuard;

    async fn connect(urls: &[String], _access: Access) -> Result<Self> {
        let clients = urls.iter().map(|url| client(url));
        let clients = clients.collect::<Result<_>>()?;
        Ok(Self(LockManager::from_clients(clients)))
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.acquire(key, TTL).await?)
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
