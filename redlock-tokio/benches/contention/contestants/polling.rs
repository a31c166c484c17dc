use std::time::Duration;

use super::{plain::Plain, wire};
use crate::{Result, contestant::Contestant};

/// The floor for a lock that polls: try, take back what was set, sleep a little, try again.
///
/// Does nothing else that a lock must do: no time limit, no renewal, no reconnecting. Waits for all
/// nodes both ways.
#[derive(Clone)]
pub(crate) struct Polling(Plain);

impl Contestant for Polling {
    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Plain::connect(urls).await?))
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = format!("{:032x}", fastrand::u128(..));
        while self.0.set(key, &token, wire::TTL).await.granted() < wire::QUORUM {
            self.0.delete(key, &token).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5))).await;
        }
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        match self.0.delete(key, &token).await.granted() {
            wire::QUORUM.. => Ok(()),
            votes => Err(format!("only {votes} nodes had the key").into()),
        }
    }
}
