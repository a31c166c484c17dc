mod compare;
mod counter_name;
mod info;
mod invalidations;
mod marker;
mod request;
mod rights;
mod script;
mod server_error;
mod session;
mod shorten;
mod url;

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use deadpool_redis::{
    Connection, Manager, Pool, PoolError, Runtime,
    redis::{AsyncConnectionConfig, ConnectionInfo, ProtocolVersion},
};
use futures::{FutureExt, future::BoxFuture};

pub use self::url::UrlError;
use self::{
    invalidations::Invalidations, server_error::connect_error, session::RedisSession, url::NodeUrl,
};
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
    pool: Pool,
    resp3: Option<Resp3>,
}

/// Connections by which a server also reports that a key is gone.
struct Resp3 {
    pool: Pool,
    invalidations: Arc<Invalidations>,
    /// The server does not speak RESP3.
    is_unknown: AtomicBool,
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
        let NodeUrl {
            address,
            info,
            excludes_resp3,
        } = NodeUrl::parse(url)?;
        // The lane has its own time limits, so requests and connects need no timer of their own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let resp3 = if excludes_resp3 {
            None
        } else {
            Some(Resp3::new(info.clone(), config.clone())?)
        };
        Ok(Self {
            address,
            pool: pool(info, config)?,
            resp3,
        })
    }

    /// Creates a node from a pool of your own. `address` is the node's name in errors and logs.
    ///
    /// The pool's connections report no free locks, so that waiters ask from time to time.
    #[must_use]
    pub fn from_pool(address: impl Into<String>, pool: Pool) -> Self {
        Self {
            address: address.into().into(),
            pool,
            resp3: None,
        }
    }

    /// Returns a connection, and what receives its messages if it speaks RESP3.
    async fn get(&self) -> Result<(Connection, Option<Arc<Invalidations>>), PoolError> {
        if let Some(resp3) = &self.resp3
            && !resp3.is_unknown.load(Ordering::Relaxed)
        {
            match resp3.pool.get().await {
                Ok(connection) => return Ok((connection, Some(Arc::clone(&resp3.invalidations)))),
                Err(error) if is_unknown_protocol(&error) => {
                    resp3.is_unknown.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((self.pool.get().await?, None))
    }
}

impl Resp3 {
    fn new(info: ConnectionInfo, config: AsyncConnectionConfig) -> Result<Self, UrlError> {
        let invalidations = Arc::new(Invalidations::default());
        let settings = info.redis_settings().clone();
        let info = info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3));
        let receiver = Arc::clone(&invalidations);
        let config = config.set_push_sender(move |push| {
            receiver.handle(&push);
            Ok::<_, Infallible>(())
        });
        Ok(Self {
            pool: pool(info, config)?,
            invalidations,
            is_unknown: AtomicBool::new(false),
        })
    }
}

/// Returns whether an error while connecting says that the server does not speak RESP3.
fn is_unknown_protocol(error: &PoolError) -> bool {
    let PoolError::Backend(error) = error else {
        return false;
    };
    let text = error.to_string();
    // The redis crate writes the last text instead of the second.
    let words = ["NOPROTO", "unknown command", "doesn't support HELLO"];
    words.iter().any(|words| text.contains(words))
}

fn pool(info: ConnectionInfo, config: AsyncConnectionConfig) -> Result<Pool, UrlError> {
    let manager =
        Manager::new_with_config(info, config).map_err(|error| UrlError::new(error.to_string()))?;
    Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        // One in use, and its replacement while that is opened.
        .max_size(2)
        .build()
        .map_err(|error| UrlError::new(error.to_string()))
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let (connection, invalidations) = self.get().await.map_err(|error| match error {
                PoolError::Backend(error) => connect_error(&error),
                other => NodeError::Unreachable(other.to_string().into()),
            })?;
            let session = RedisSession::open(connection, invalidations).await?;
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
