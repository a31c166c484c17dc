use std::sync::Arc;

use deadpool_redis::Pool;

use crate::{
    BuildError, Clock, Durability, MemoryNode, RedlockBuilder,
    node::{Node, RedisNode},
};

/// The nodes.
impl RedlockBuilder {
    /// Adds masters by URL. [`RedisNode::from_url`] lists the forms of a URL. [`node_list`](Self::node_list) takes the
    /// URLs as one text.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let urls = [
    ///     "redis://a:6379",
    ///     "redis://user:secret@b:6379/1",
    ///     "unix:///run/redis.sock",
    /// ];
    /// let redlock = Redlock::builder().nodes(urls).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes<I>(mut self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        for url in urls {
            let position = self.nodes.len() + 1;
            let node = RedisNode::from_url(url.as_ref())
                .map(|node| Arc::new(node) as Arc<dyn Node>)
                .map_err(|error| BuildError::Url { position, error });
            self.nodes.push(node);
        }
        self
    }

    /// Adds masters by pools of your own, each with the name that errors and logs use for it.
    ///
    /// A `Redlock` keeps one connection of each pool. Servers send no notifications over such a connection, so
    /// waiters poll (see [`LockOptions::retry_delay`](crate::LockOptions::retry_delay)). Pools that do wake them are added as
    /// nodes: [`RedisNode::from_pool_with`].
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use redlock_tokio::deadpool_redis::{Config, Runtime};
    ///
    /// let mut pools = Vec::new();
    /// for host in ["a", "b", "c"] {
    ///     let config = Config::from_url(format!("redis://{host}"));
    ///     pools.push((host, config.create_pool(Some(Runtime::Tokio1))?));
    /// }
    /// let redlock = Redlock::builder().pools(pools).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pools<I, S>(self, pools: I) -> Self
    where
        I: IntoIterator<Item = (S, Pool)>,
        S: Into<String>,
    {
        let nodes = pools
            .into_iter()
            .map(|(address, pool)| RedisNode::from_pool(address, pool));
        self.custom_nodes(nodes)
    }

    /// Adds masters of any type that implements [`Node`], such as [`MemoryNode`].
    ///
    /// ```
    /// # use redlock_tokio::{Clock, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = [(); 3].map(|()| MemoryNode::new());
    /// let builder = Redlock::builder().custom_nodes(nodes.clone());
    /// let redlock = builder.clock(Clock::tokio()).build().await?;
    /// nodes[0].set_down(true);
    /// assert!(redlock.lock("order:42").await.is_ok()); // two of three agree
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom_nodes<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Node,
    {
        let nodes = nodes.into_iter();
        self.nodes
            .extend(nodes.map(|node| Ok(Arc::new(node) as Arc<dyn Node>)));
        self
    }

    /// Adds five [`MemoryNode`]s, and sets [`Clock::tokio`], by which their keys expire.
    ///
    /// Also sets [`Durability::AssumedForTests`], which applies to all nodes. So do not combine this method with real
    /// servers.
    pub fn embedded(self) -> Self {
        let nodes = (0..5).map(|_| MemoryNode::new());
        self.custom_nodes(nodes)
            .clock(Clock::tokio())
            .durability(Durability::AssumedForTests)
    }
}
