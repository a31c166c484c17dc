mod address;
mod builder;
mod callback;
mod cluster;
mod connect;
mod credentials;
mod info;
mod invalidations;
mod key_slot;
mod key_tag;
mod lines;
mod look_up;
mod marker;
mod pool;
mod request;
mod rights;
mod roll_call;
mod script;
mod sentinel;
mod server_error;
mod session;
mod tls;
mod url;

use std::fmt;

use deadpool_redis::Pool;
use futures::{FutureExt, future::BoxFuture};

pub(crate) use self::cluster::ClusterAuthority;
pub use self::{
    builder::{RedisNodeBuilder, RedisNodeError},
    cluster::{ClusterError, ClusterNodes},
    credentials::Credentials,
    pool::PoolMessages,
    sentinel::SentinelNodeBuilder,
    tls::{TlsError, TlsOptions},
    url::UrlError,
};
use self::{
    key_tag::KeyTag, pool::OwnPool, sentinel::SentinelNode, session::RedisSession, url::NodeUrl,
};
use super::{NamedBy, Node, NodeError, Session};

/// A Redis (or Valkey) master.
///
/// There are four ways to make one. Each lock service keeps one connection to the node, and opens another when that one
/// breaks.
///
/// | from | for | wake-up of waiters |
/// |---|---|---|
/// | [`from_url`](Self::from_url) | most masters | yes |
/// | [`builder`](Self::builder) | credentials that rotate, certificates or streams of your own | yes |
/// | [`sentinel`](Self::sentinel) | the master of a group that sentinels watch | yes |
/// | [`from_pool`](Self::from_pool), [`from_pool_with`](Self::from_pool_with) | a [`deadpool_redis`] pool that you have already | only with its messages |
///
/// ```
/// use redlock_tokio::{RedisNode, node::Node};
///
/// // Does not connect yet. The address, which logs show, has no secrets.
/// let node = RedisNode::from_url("redis://user:secret@redis-a.internal:6380")?;
/// assert_eq!(node.address(), "redis-a.internal:6380");
/// # Ok::<_, redlock_tokio::UrlError>(())
/// ```
pub struct RedisNode {
    address: Box<str>,
    source: Source,
}

enum Source {
    Url(Box<NodeUrl>),
    Pool(OwnPool),
    /// Sentinels know where the server is.
    Group(SentinelNode),
}

impl RedisNode {
    /// Creates a node from a URL, as the `redis` crate reads it:
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`
    /// - `rediss://..` for TLS (feature `tls-rustls`)
    /// - `unix:///path/to/socket[?db=1&user=..&pass=..]`
    /// - `redis+sentinel://..` for the master of a [sentinel group](Self::sentinel)
    ///
    /// Special characters in user and password are percent-encoded: `%40` for `@`, `%23` for `#`, `%2F` for `/`.
    ///
    /// Speaks RESP3 if the server does. The server then reports when a lock that somebody waits for is
    /// free. `?protocol=resp2` turns that off.
    ///
    /// Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`UrlError`] says what is wrong with the URL.
    ///
    /// ```
    /// use redlock_tokio::RedisNode;
    ///
    /// let error = RedisNode::from_url("localhost:6379").unwrap_err();
    /// assert!(error.to_string().contains("expected redis://"));
    /// ```
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        Self::from_url_with(url, None).map_err(RedisNodeError::into_url_error)
    }

    /// Creates a node from a URL that asks for TLS if there are options for it.
    pub(crate) fn from_url_with(
        url: &str,
        tls: Option<&TlsOptions>,
    ) -> Result<Self, RedisNodeError> {
        if let Some(group) = SentinelNodeBuilder::from_url(url) {
            let group = group?;
            return match tls {
                Some(tls) => group.with_tls(tls)?.build(),
                None => group.build(),
            };
        }
        let NodeUrl { endpoint, settings } = NodeUrl::parse(url)?;
        let settings = settings.with_tls(tls)?;
        Ok(Self::at(NodeUrl { endpoint, settings }))
    }

    /// Returns a builder of the master of a group that sentinels watch. `name` is the group's name in their configuration, and
    /// `sentinels` are their addresses: `host` or `host:port`, with port 26379 by default.
    ///
    /// Give all sentinels, or at least enough that one of them is always up. The others are found through it. If more
    /// are given than the group has, a majority of the given ones must agree.
    ///
    /// The URL `redis+sentinel://[user[:password]@]host[:port],host[:port]/group[/database]` does the same, with the
    /// user and the password of the servers. `rediss+sentinel://` is for TLS to the servers. The parameters
    /// `sentinel_user`, `sentinel_password`, `sentinel_tls=true` and `protocol=resp2` follow a `?`.
    ///
    /// ```no_run
    /// # use redlock_tokio::{RedisNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = RedisNode::sentinel("orders", ["s1", "s2", "s3"]).password("secret").build()?;
    /// let redlock = Redlock::builder().custom_nodes([node]).build().await?;
    ///
    /// // The same.
    /// let url = "redis+sentinel://:secret@s1,s2,s3/orders";
    /// let redlock = Redlock::connect([url]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<I>(name: &str, sentinels: I) -> SentinelNodeBuilder
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        SentinelNodeBuilder::new(name, sentinels)
    }

    /// Creates a node from a pool of your own. `address` is the node's name in errors and logs.
    ///
    /// The node takes one connection out of the pool, and another one when that one breaks. Connections of the pool report
    /// no free locks, so waiters ask from time to time. [`from_pool_with`](Self::from_pool_with) wakes them.
    #[must_use]
    pub fn from_pool(address: impl Into<String>, pool: Pool) -> Self {
        Self::of_pool(address.into(), pool, None)
    }

    /// Likewise, from a pool whose manager was created with the [settings](PoolMessages::config) of these messages. They
    /// wake waiters, if the connections speak RESP3.
    ///
    /// ```
    /// use redlock_tokio::{
    ///     PoolMessages, RedisNode,
    ///     deadpool_redis::{Manager, Pool},
    /// };
    ///
    /// let messages = PoolMessages::new();
    /// let url = "redis://redis-a.internal/?protocol=resp3";
    /// let manager = Manager::new_with_config(url, messages.config())?;
    /// let pool = Pool::builder(manager).max_size(8).build()?;
    /// let node = RedisNode::from_pool_with("redis-a", pool, messages);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_pool_with(address: impl Into<String>, pool: Pool, messages: PoolMessages) -> Self {
        Self::of_pool(address.into(), pool, Some(messages))
    }

    fn of_pool(address: String, pool: Pool, messages: Option<PoolMessages>) -> Self {
        Self {
            address: address.into(),
            source: Source::Pool(OwnPool { pool, messages }),
        }
    }

    fn at(url: NodeUrl) -> Self {
        Self {
            address: url.name().into(),
            source: Source::Url(url.into()),
        }
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let opened = match &self.source {
                Source::Url(url) => url.settings.open(&url.endpoint).await?,
                Source::Pool(pool) => pool.open().await?,
                Source::Group(_) => {
                    let text = "the sentinels name the master: connect through `named_by`";
                    return Err(NodeError::Unreachable(text.into()));
                }
            };
            let session = RedisSession::open(opened, KeyTag::NONE, None).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        match &self.source {
            Source::Group(group) => Some(group.named_by()),
            Source::Url(_) | Source::Pool(_) => None,
        }
    }
}

impl SentinelNodeBuilder {
    /// Builds the node. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`RedisNodeError`] says what cannot be used: an empty name, no sentinels, an address that is invalid or occurs
    /// twice, TLS options, or credentials from two sources. No error repeats a password or a private key.
    pub fn build(self) -> Result<RedisNode, RedisNodeError> {
        let group = self.group()?;
        Ok(RedisNode {
            address: group.address().into(),
            source: Source::Group(group),
        })
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode").field(&self.address).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_carry_no_secrets() {
        let address = |url| RedisNode::from_url(url).unwrap().address().to_owned();
        assert_eq!(address("redis://Localhost"), "localhost:6379");
        assert_eq!(address("redis://user:hunter2@Host:7000/0"), "host:7000");
        assert_eq!(address("redis://user:hunter2@Host:7000/3"), "host:7000/3");
        assert_eq!(address("redis://[::1]:7000"), "[::1]:7000");
        assert_eq!(address("unix:///run/a.sock?pass=hunter2"), "/run/a.sock");
        assert_eq!(address("unix:///run/a.sock?db=2"), "/run/a.sock?db=2");
        assert_eq!(
            address("redis+sentinel://:hunter2@s1,s2/group/3"),
            "group/3@s1:26379,s2:26379"
        );
    }

    #[test]
    fn debug_carries_no_secrets() {
        let node = RedisNode::from_url("redis://user:hunter2@host").unwrap();
        assert_eq!(format!("{node:?}"), "RedisNode(\"host:6379\")");
    }
}
