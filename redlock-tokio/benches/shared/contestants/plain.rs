use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{Cmd, aio::MultiplexedConnection};
use futures::future::join_all;

use super::{
    Contestant,
    wire::{self, Replies},
};
use crate::Result;

/// The floor for a lock over redis-rs that sends each command by itself, and for one that polls: try, take back what
/// was set, sleep a little, try again. It has a multiplexed connection to each node.
///
/// Does nothing else that a lock must do: no time limit, no renewal, no reconnecting. Waits for all nodes, not for the
/// majority: redis-rs does not send a request whose future was dropped before it was written, so a client that leaves
/// early leaves keys behind.
#[derive(Clone)]
pub(crate) struct Plain {
    connections: Arc<[MultiplexedConnection]>,
    release: Arc<str>,
}

impl Plain {
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

impl Contestant for Plain {
    const NAME: &'static str = "redis-rs, a future per command";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
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

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        while self.set(key, &token, wire::TTL).await.granted() < wire::QUORUM {
            self.delete(key, &token).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5))).await;
        }
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        self.delete(key, &token).await.verdict()
    }
}
