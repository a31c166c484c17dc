use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{self, Client, Cmd, aio::MultiplexedConnection};
use futures::future::join_all;

use super::wire;
use crate::Result;

/// A client without any library: one multiplexed connection a node, and the canonical commands.
#[derive(Clone)]
pub(crate) struct Plain {
    connections: Arc<[MultiplexedConnection]>,
    release: Arc<str>,
}

impl Plain {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
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

    /// Sets the key where there is none. Returns how many nodes did, when the last has answered.
    pub(crate) async fn set(&self, key: &str, token: &str, ttl: Duration) -> usize {
        let mut cmd = redis::cmd("SET");
        cmd.arg(key).arg(token).arg("NX").arg("PX");
        cmd.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self.ask_all(&cmd).await
    }

    /// Deletes the key where it has this token. Returns how many nodes did, when the last has
    /// answered.
    pub(crate) async fn delete(&self, key: &str, token: &str) -> usize {
        let cmd = wire::compare_and_delete(&self.release, key, token);
        self.ask_all(&cmd).await
    }

    /// Asks the first node for nothing but an answer.
    pub(crate) async fn ping(&self) -> Result<()> {
        let mut connection = self.connections[0].clone();
        Ok(redis::cmd("PING").query_async(&mut connection).await?)
    }

    async fn ask_all(&self, cmd: &Cmd) -> usize {
        let replies = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { connection.send_packed_command(cmd).await }
        });
        let replies = join_all(replies).await;
        replies.iter().filter(|it| wire::is_granted(it)).count()
    }
}
