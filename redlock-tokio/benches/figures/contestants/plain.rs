use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{self, Cmd, RedisResult, Value, aio::MultiplexedConnection};
use futures::future::join_all;

use super::{Access, Contestant, TTL, client};
use crate::Result;

/// How many of five nodes must agree.
const QUORUM: usize = 3;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1]) \
     else return 0 end";

/// The floor for a lock over redis-rs that sends each command by itself, and for one that polls: try, take back what
/// was set, sleep a little, try again. It has a multiplexed connection to each node.
///
/// Does nothing else that a lock must do: no time limit, no renewal, no reconnecting. Waits for all nodes, not for the
/// majority: redis-rs does not send a request whose future was dropped before it was written, so a client that leaves
/// early leaves keys behind.
#[derive(Clone)]
pub(crate) struct Plain {
    connections: Arc<[MultiplexedConnection]>,
    /// The hash of the script that releases.
    release: Arc<str>,
}

/// The replies of all nodes to a command.
pub(crate) struct Replies(Vec<RedisResult<Value>>);

impl Replies {
    /// Returns how many nodes agreed.
    pub(crate) fn granted(&self) -> usize {
        let is_granted = |reply: &&_| matches!(reply, Ok(Value::Okay | Value::Int(1)));
        self.0.iter().filter(is_granted).count()
    }
}

impl Plain {
    /// Sets the key where there is none.
    pub(crate) async fn set(&self, key: &str, token: &str, ttl: Duration) -> Replies {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let mut cmd = redis::cmd("SET");
        cmd.arg(key).arg(token).arg("NX").arg("PX").arg(ttl);
        self.ask_all(&cmd).await
    }

    /// Deletes the key where it has this token.
    pub(crate) async fn delete(&self, key: &str, token: &str) -> Replies {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.release).arg(1).arg(key).arg(token);
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
    type Held = String;

    async fn connect(urls: &[String], _access: Access) -> Result<Self> {
        let mut connections = Vec::new();
        let mut release = String::new();
        for url in urls {
            let mut connection = client(url)?.get_multiplexed_async_connection().await?;
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(RELEASE);
            release = load.query_async(&mut connection).await?;
            connections.push(connection);
        }
        Ok(Self {
            connections: connections.into(),
            release: release.into(),
        })
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = format!("{:032x}", fastrand::u128(..));
        while self.set(key, &token, TTL).await.granted() < QUORUM {
            self.delete(key, &token).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5))).await;
        }
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        let replies = self.delete(key, &token).await;
        if replies.granted() >= QUORUM {
            Ok(())
        } else {
            Err(format!("no quorum: {:?}", replies.0).into())
        }
    }
}
