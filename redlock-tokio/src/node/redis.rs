mod builder;
mod callback;
mod cluster;
mod compare;
mod connect;
mod counter_name;
mod credentials;
mod info;
mod invalidations;
mod key_tag;
mod marker;
mod opened;
mod pool;
mod request;
mod rights;
mod script;
mod server_error;
mod session;
mod shorten;
mod source;
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
    tls::{TlsError, TlsOptions},
    url::UrlError,
};
use self::{pool::Pools, session::RedisSession, source::Source, url::NodeUrl};
use super::{Node, NodeError, Session};

/// A Redis (or Valkey) master, reached through a [`deadpool_redis`] pool.
///
/// The pool creates connections: it knows the address, the credentials, the database, TLS and any
/// hooks. A lock takes one connection from the pool and keeps it until it breaks.
///
/// ```
/// use redlock_tokio::{Node, RedisNode};
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

impl RedisNode {
    /// Creates a node from a URL, as the `redis` crate reads it:
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`
    /// - `rediss://..` for TLS (feature `tls-rustls`)
    /// - `unix:///path/to/socket[?db=1&user=..&pass=..]`
    ///
    /// Special characters in user and password are percent-encoded: `%40` for `@`, `%23` for `#`.
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
        let NodeUrl { endpoint, settings } = NodeUrl::parse(url)?;
        Ok(Self {
            address: endpoint.to_string().into(),
            source: Source::Pools(Pools::new(&settings, &endpoint)?),
        })
    }

    /// Creates a node from a pool of your own. `address` is the node's name in errors and logs.
    ///
    /// The pool's connections report no free locks, so that waiters ask from time to time.
    #[must_use]
    pub fn from_pool(address: impl Into<String>, pool: Pool) -> Self {
        Self {
            address: address.into().into(),
            source: Source::Pools(Pools::of(pool)),
        }
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let session = RedisSession::open(self.source.open().await?).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
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
        assert_eq!(address("redis://user:hunter2@Host:7000/3"), "host:7000");
        assert_eq!(address("redis://[::1]:7000"), "[::1]:7000");
        assert_eq!(address("unix:///run/a.sock?pass=hunter2"), "/run/a.sock");
    }

    #[test]
    fn bad_urls_are_named_without_their_text() {
        let bad = [
            "",
            "localhost",
            "http://hunter2@host",
            "redis://:hunter2@",
            "redis://:hunter2@host/x",
            "redis://:hunter2@host:99999",
            "redis://:hunter2@0.0.0.0",
            "redis://:p@hunter2#w@127.0.0.1",
        ];
        for url in bad {
            let error = RedisNode::from_url(url).unwrap_err().to_string();
            assert!(error.contains("expected redis://"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn debug_carries_no_secrets() {
        let node = RedisNode::from_url("redis://user:hunter2@host").unwrap();
        assert_eq!(format!("{node:?}"), "RedisNode(\"host:6379\")");
    }
}
