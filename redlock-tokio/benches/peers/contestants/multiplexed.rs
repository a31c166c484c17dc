use super::{plain::Plain, wire};
use crate::{Result, contestant::Contestant};

/// The floor for a lock over redis-rs that sends each command by itself.
#[derive(Clone)]
pub(crate) struct Multiplexed(Plain);

impl Contestant for Multiplexed {
    const NAME: &'static str = "redis-rs, a future per command";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Plain::connect(urls).await?))
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        self.0.set(key, &token, wire::TTL).await.verdict()?;
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        self.0.delete(key, &token).await.verdict()
    }
}
