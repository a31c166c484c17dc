use std::sync::Arc;

use deadpool_redis::{
    Config, Pool, Runtime,
    redis::{Cmd, RedisError, Value},
};
use futures::future::join_all;

use super::{
    Contestant,
    wire::{self, Replies},
};
use crate::Result;

/// What one writes first with deadpool-redis: `Pool::get` for every command, with the default
/// settings. Waits for all nodes.
#[derive(Clone)]
pub(crate) struct PoolGet {
    pools: Arc<[Pool]>,
    release: Arc<str>,
}

impl PoolGet {
    async fn ask_all(&self, cmd: &Cmd) -> Result<()> {
        let replies = self.pools.iter().map(|pool| ask(pool, cmd));
        Replies(join_all(replies).await).verdict()
    }
}

async fn ask(pool: &Pool, cmd: &Cmd) -> Result<Value, RedisError> {
    let mut connection = pool
        .get()
        .await
        .map_err(|error| RedisError::from(std::io::Error::other(error.to_string())))?;
    cmd.query_async(&mut connection).await
}

impl Contestant for PoolGet {
    const NAME: &'static str = "Pool::get per command";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        let mut pools = Vec::new();
        let mut release = String::new();
        for url in urls {
            let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1))?;
            release = wire::load_release(&mut pool.get().await?).await?;
            pools.push(pool);
        }
        Ok(Self {
            pools: pools.into(),
            release: release.into(),
        })
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        self.ask_all(&wire::set(key, &token, wire::TTL)).await?;
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        let cmd = wire::compare_and_delete(&self.release, key, &token);
        self.ask_all(&cmd).await
    }
}
