use ::rslock::{Lock, LockManager};

use super::wire;
use crate::{Result, contestant::Contestant};

/// The [rslock](::rslock) crate, with its own settings, except that Nagle's algorithm is off.
/// Its `lock` and `unlock` wait for all nodes. It opens its connections at the first lock.
#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Contestant for Rslock {
    const NAME: &'static str = "rslock 0.10";

    type Held = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        let clients = urls.iter().map(|url| wire::client(url));
        let clients = clients.collect::<Result<_>>()?;
        Ok(Self(LockManager::from_clients(clients)))
    }

    async fn acquire(&self, key: &str) -> Result<Lock> {
        Ok(self.0.lock(key, wire::TTL).await?)
    }

    async fn release(&self, _key: &str, lock: Lock) -> Result<()> {
        self.0.unlock(&lock).await;
        Ok(())
    }
}
