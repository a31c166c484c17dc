use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{Cmd, aio::MultiplexedConnection};
use futures::future::join_all;

use super::{
    Contestant,
    wire::{self, Replies},
};
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

/// The floor for a lock over redis-rs that sends each command by itself. It asks once.
#[derive(Clone)]
pub(crate) struct Multiplexed(Plain);

/// The floor for a lock that polls: try, take back what was set, sleep a little, try again.
///
/// Does nothing else that a lock must do: no time limit, no renewal, no reconnecting. Waits for all
/// nodes both ways.
#[derive(Clone)]
pub(crate) struct Polling(Plain);

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

    async fn ask_all(&self, cmd: &Cmd) -> Replies {
        let replies = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            async move { connection.send_packed_command(cmd).await }
        });
        Replies(join_all(replies).await)
    }
}

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

impl Contestant for Polling {
    const NAME: &'static str = "polling floor";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Plain::connect(urls).await?))
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        while self.0.set(key, &token, wire::TTL).await.granted() < wire::QUORUM {
            self.0.delete(key, &token).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5))).await;
        }
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        self.0.delete(key, &token).await.verdict()
    }
}
