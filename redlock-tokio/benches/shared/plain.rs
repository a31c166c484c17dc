use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{self, Cmd, aio::MultiplexedConnection};
use futures::future::join_all;

use super::wire::{self, Replies};
use crate::Result;

/// A client without any library: one multiplexed connection a node, one future a command, and the
/// canonical commands.
///
/// Waits for all nodes, not for the majority: redis-rs does not send a request whose future was
/// dropped before it was written, so a client that leaves early leaves keys behind.
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
            let client = wire::client(url)?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            release = wire::load_release(&mut connection).await?;
            connections.push(connection);
        }
        Ok(Self {
            connections: connections.into(),
            release: release.into(),
        })
    }

    /// Sets the key where there is none.
    pub(crate) async fn set(&self, key: &str, token: &str, ttl: Duration) -> Replies {
        self.ask_all(&wire::set(key, token, ttl)).await
    }

    /// Deletes the key where it has this token.
    pub(crate) async fn delete(&self, key: &str, token: &str) -> Replies {
        let cmd = wire::compare_and_delete(&self.release, key, token);
        self.ask_all(&cmd).await
    }

    /// Asks the first node for nothing but an answer.
    pub(crate) async fn ping(&self) -> Result<()> {
        let mut connection = self.connections[0].clone();
        Ok(redis::cmd("PING").query_async(&mut connection).await?)
    }

    async fn ask_all(&self, cmd: &Cmd) -> Replies {
        let replies = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { connection.send_packed_command(cmd).await }
        });
        Replies(join_all(replies).await)
    }
}
