use std::time::Duration;

use super::{RedisServer, SpawnError};
use redlock_tokio::{Durability, Redlock, RedlockBuilder};

/// On a busy machine a healthy server can exceed the default of 50 ms.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Several independent `redis-server` processes on free ports of the loopback interface.
///
/// They store nothing on disk, unless their arguments say so. They end when this is dropped, and even when the
/// process ends in any way.
///
/// ```
/// use redlock_kit::RedisServers;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let servers = RedisServers::spawn(3)?;
/// let redlock = servers.builder().build().await?;
///
/// servers.get(2).freeze(); // two of three are a majority
/// let guard = redlock.lock("order:42").await?;
/// assert!(guard.is_valid());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServers {
    servers: Vec<RedisServer>,
}

impl RedisServers {
    /// Starts `count` servers, and blocks until all of them answer.
    ///
    /// The program is `redis-server`, or the one that the environment variable `REDIS_SERVER` names.
    ///
    /// # Errors
    ///
    /// [`SpawnError::NotInstalled`] if the program is missing. Its message contains the command that installs
    /// the program. Other errors if a server does not start.
    pub fn spawn(count: usize) -> Result<Self, SpawnError> {
        Self::spawn_with(count, &[])
    }

    /// Starts `count` servers with more arguments, such as `["--requirepass", "secret"]`. In an argument,
    /// `{port}` stands for the server's port.
    ///
    /// # Errors
    ///
    /// As for [`RedisServers::spawn`].
    pub fn spawn_with(count: usize, arguments: &[&str]) -> Result<Self, SpawnError> {
        let servers = (0..count)
            .map(|_| RedisServer::spawn(arguments))
            .collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// Kills all servers, and then starts them again, like a power cut. See [`RedisServer::restart`].
    ///
    /// # Errors
    ///
    /// As for [`RedisServers::spawn`]. The server that failed to start and those after it stay down.
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
    ///
    /// # Panics
    ///
    /// If there is no server at this position.
    #[must_use]
    pub fn get(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    /// Returns all servers.
    pub fn iter(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter()
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns whether there are no servers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}
