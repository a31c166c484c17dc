use ::rslock::{LockGuard, LockManager};

use super::wire;
use crate::{Result, contestant::Contestant};

/// The [rslock](::rslock) crate, with its own settings, except that Nagle's algorithm is off. Its
/// `acquire` tries until it succeeds; all that it does waits for all nodes.
#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Contestant for Rslock {
    type Held = LockGuard;

    async fn connect(urls: &[String]) -> Result<Self> {
        let clients = urls.iter().map(|url| wire::client(url));
        let clients = clients.collect::<Result<_>>()?;
        Ok(Self(LockManager::from_clients(clients)))
    }

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.acquire(key, wire::TTL).await?)
    }

    async fn release(&self, _key: &str, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
