use std::time::Duration;

use super::{RedisServer, SpawnError};
use crate::{Redlock, RedlockBuilder};

/// An answer that comes later than the default of 50 ms, because the machine is busy, would be sent for again.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// Several independent `redis-server` processes on free ports of the loopback interface.
///
/// They keep nothing on disk, unless their arguments say so, and end when this is dropped or the
/// process ends, however it ends.
#[derive(Debug)]
pub struct RedisServers {
    servers: Vec<RedisServer>,
}

impl RedisServers {
    /// Starts `count` servers, and blocks until all of them answer.
    ///
    /// The program is `redis-server`, or what the environment variable `REDIS_SERVER` names.
    ///
    /// # Errors
    ///
    /// Fails if the program is missing (and says how to install it) or does not start.
    pub fn spawn(count: usize) -> Result<Self, SpawnError> {
        Self::spawn_with(count, &[])
    }

    /// Does the same with more arguments for the servers, such as `["--requirepass", "secret"]`.
    /// In an argument, `{port}` stands for the server's port.
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

    /// Kills all servers, and then starts them again, as a power cut does. See
    /// [`RedisServer::restart`].
    ///
    /// # Errors
    ///
    /// As for [`RedisServers::spawn`]. Servers behind the one that failed to start stay down.
    pub fn restart(&self) -> Result<(), SpawnError> {
        self.servers.iter().for_each(RedisServer::kill);
        self.servers.iter().try_for_each(RedisServer::restart)
    }

    /// Starts to configure a lock over these servers, which may vote although they have just come up.
    ///
    /// A server gets half a second for each answer, since it shares a busy machine with the tests. Set
    /// [`node_timeout`](RedlockBuilder::node_timeout) where a test is about servers that do not answer.
    pub fn builder(&self) -> RedlockBuilder {
        Redlock::builder()
            .nodes(self.urls())
            .trust_fresh_nodes()
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
