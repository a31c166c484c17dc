use std::{ops::Deref, time::Duration};

use super::{RedisServer, SpawnError};
use redlock_tokio::{Durability, Redlock, RedlockBuilder};

/// On a busy machine a healthy server can exceed the default of 50 ms.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Several independent `redis-server` processes on free ports of the loopback interface.
///
/// They store nothing on disk, unless their arguments say so. They end when this is dropped, and even when the
/// process ends in any way.
#[derive(Debug)]
pub struct RedisServers {
    servers: Vec<RedisServer>,
}

impl RedisServers {
    /// Starts `count` servers, and blocks until all of them answer.
    ///
    /// The program is `redis-server`, or the one that the environment variable `REDIS_SERVER` names.
    pub fn spawn(count: usize) -> Result<Self, SpawnError> {
        Self::spawn_with(count, &[])
    }

    /// Starts `count` servers with more arguments, such as `["--requirepass", "secret"]`. In an argument,
    /// `{port}` stands for the server's port.
    pub fn spawn_with(count: usize, arguments: &[&str]) -> Result<Self, SpawnError> {
        let servers = (0..count)
            .map(|_| RedisServer::spawn(arguments))
            .collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// Kills all servers, and then starts them again, like a power cut. See [`RedisServer::restart`].
    pub fn restart(&self) -> Result<(), SpawnError> {
        self.servers.iter().for_each(RedisServer::kill);
        self.servers.iter().try_for_each(RedisServer::restart)
    }

    /// Returns a builder for a lock over these servers. The servers may vote although they have just come up.
    ///
    /// Each answer may take two seconds, since the servers share a busy machine with the tests. Set a shorter
    /// [`node_timeout`](RedlockBuilder::node_timeout) to test servers that do not answer.
    pub fn builder(&self) -> RedlockBuilder {
        Redlock::builder()
            .nodes(self.urls())
            .durability(Durability::AssumedForTests)
            .node_timeout(NODE_TIMEOUT)
    }

    /// Returns the servers' URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Returns one of the servers.
    #[must_use]
    pub fn get(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }
}

impl Deref for RedisServers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.servers
    }
}
