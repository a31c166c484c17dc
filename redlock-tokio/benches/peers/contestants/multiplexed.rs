use std::sync::Arc;

use deadpool_redis::redis::{Client, Cmd, aio::MultiplexedConnection};
use futures::future::join_all;

use super::wire;
use crate::{Result, contestant::Contestant};

/// The floor for a lock over redis-rs that sends each command by itself: one multiplexed connection
/// a node, one future a command.
///
/// Waits for all nodes, not for the majority: redis-rs does not send a request whose future was
/// dropped before it was written, so whoever leaves early leaves keys behind.
#[derive(Clone)]
pub(crate) struct Multiplexed {
    connections: Arc<[MultiplexedConnection]>,
    release: Arc<str>,
}

impl Multiplexed {
    async fn ask_all(&self, cmd: &Cmd) -> Result<()> {
        let replies = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { connection.send_packed_command(cmd).await }
        });
        wire::verdict(&join_all(replies).await)
    }
}

impl Contestant for Multiplexed {
    const NAME: &'static str = "redis-rs, a future per command";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        let mut connections = Vec::new();
        let mut release = String::new();
        for url in urls {
            let client = Client::open(wire::without_nagle(url)?)?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            release = wire::load_release(&mut connection).await?;
            connections.push(connection);
        }
        Ok(Self {
            connections: connections.into(),
            release: release.into(),
        })
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        self.ask_all(&wire::set(key, &token)).await?;
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        let cmd = wire::compare_and_delete(&self.release, key, &token);
        self.ask_all(&cmd).await
    }
}
