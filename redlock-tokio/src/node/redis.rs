mod compare;
mod counter_name;
mod marker;
mod part;
mod pushes;
mod request;
mod rights;
mod script;
mod session;
mod stretch;

use std::{
    convert::Infallible,
    error::Error,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{
    Manager, Pool, PoolError, Runtime,
    redis::{
        AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
        RedisError, io::tcp::TcpSettings,
    },
};
use futures::{FutureExt, future::BoxFuture};

use self::{pushes::Pushes, session::RedisSession};
use super::{Node, NodeError, Session};

/// A Redis (or Valkey) master, reached through a [`deadpool_redis`] pool.
///
/// The pool creates connections: it knows the address, the credentials, the database, TLS and any
/// hooks. A lock takes one connection from it and keeps that until it breaks.
pub struct RedisNode {
    address: Box<str>,
    pool: Pool,
    /// The same over RESP3, by which a server also tells when a key is gone.
    telling: Option<Telling>,
}

struct Telling {
    pool: Pool,
    pushes: Arc<Pushes>,
    /// The server does not speak RESP3.
    unknown: AtomicBool,
}

impl RedisNode {
    /// Creates a node from a URL, as the `redis` crate reads it:
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`
    /// - `rediss://..` for TLS (feature `tls-rustls`)
    /// - `unix:///path/to/socket[?db=1&user=..&pass=..]`
    ///
    /// Speaks RESP3 if the server does, which is then asked to tell when a lock that somebody waits
    /// for is free; `?protocol=resp2` turns that off.
    ///
    /// Special characters in user and password are percent-encoded: `%40` for `@`, `%23` for `#`.
    ///
    /// Does not connect yet.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the URL, without repeating it: it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        // What follows it would silently be left out, of a password for instance.
        if url.contains('#') {
            return Err(UrlError("a `#` must be written as %23".into()));
        }
        let info = url.trim().into_connection_info().map_err(|error| {
            let text = error.to_string();
            if text.contains("with TLS, the feature is not enabled") {
                return tls_is_off();
            }
            UrlError(text.into())
        })?;
        // Another crate may have turned TLS on in the redis crate, but nobody chose its cryptography.
        if !cfg!(feature = "tls-rustls") && matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(tls_is_off());
        }
        install_crypto_provider(info.addr());
        let address = address_of(info.addr());
        // Nagle's algorithm would hold a lock's small requests back for the last one's answer.
        let info = info.set_tcp_settings(tcp_settings());
        // The lane has its own time limits, so requests and connects need no timer of their own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let settings = info.redis_settings().clone();
        let has_chosen = url.contains("protocol=");
        let telling = if has_chosen && settings.protocol() == ProtocolVersion::RESP2 {
            None
        } else {
            let pushes = Arc::new(Pushes::default());
            let settings = settings.set_protocol(ProtocolVersion::RESP3);
            let receiver = Arc::clone(&pushes);
            let config = config.clone().set_push_sender(move |push| {
                receiver.handle(&push);
                Ok::<_, Infallible>(())
            });
            Some(Telling {
                pool: pool(info.clone().set_redis_settings(settings), config)?,
                pushes,
                unknown: AtomicBool::new(false),
            })
        };
        Ok(Self {
            address,
            pool: pool(info, config)?,
            telling,
        })
    }

    /// Creates a node from a pool of your own. `address` is what errors and logs call it.
    #[must_use]
    pub fn from_pool(address: impl Into<String>, pool: Pool) -> Self {
        Self {
            address: address.into().into(),
            pool,
            telling: None,
        }
    }
}

impl Telling {
    /// Returns whether an error while connecting says that the server does not speak RESP3.
    fn is_refused(&self, error: &PoolError) -> bool {
        let PoolError::Backend(error) = error else {
            return false;
        };
        let text = error.to_string();
        // The last is what the redis crate makes of the second.
        let words = ["NOPROTO", "unknown command", "doesn't support HELLO"];
        let refused = words.iter().any(|words| text.contains(words));
        if refused {
            self.unknown.store(true, Ordering::Relaxed);
        }
        refused
    }
}

fn pool(info: ConnectionInfo, config: AsyncConnectionConfig) -> Result<Pool, UrlError> {
    let manager = Manager::new_with_config(info, config)
        .map_err(|error| UrlError(error.to_string().into()))?;
    Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        // One in use, and one being opened in its stead.
        .max_size(2)
        .build()
        .map_err(|error| UrlError(error.to_string().into()))
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let telling = self.telling.as_ref();
            let telling = telling.filter(|it| !it.unknown.load(Ordering::Relaxed));
            let (connection, pushes) = match telling {
                Some(telling) => match telling.pool.get().await {
                    Ok(connection) => (Ok(connection), Some(Arc::clone(&telling.pushes))),
                    Err(error) if telling.is_refused(&error) => (self.pool.get().await, None),
                    Err(error) => (Err(error), None),
                },
                None => (self.pool.get().await, None),
            };
            let connection = connection.map_err(|error| match error {
                PoolError::Backend(error) => connect_error(&error),
                other => NodeError::Unreachable(other.to_string().into()),
            })?;
            let session = RedisSession::open(connection, pushes).await?;
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

/// A server can answer with anything of any length; an error message cannot: it is short, and has no
/// control characters, which would do things to a terminal or forge lines of a log.
pub(super) fn shorten(mut text: String) -> String {
    const LONGEST: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push_str("..");
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

/// What an error while connecting means: that nobody is there, or that somebody is and objects.
fn connect_error(error: &RedisError) -> NodeError {
    // `HELLO` says so in a paragraph.
    if error.to_string().contains("NOAUTH") {
        return NodeError::Misconfigured("it asks for a password".into());
    }
    let text = shorten(error.to_string()).into();
    // What rustls reports of a certificate that it does not trust. The redis crate keeps the
    // error in an `Arc` that shows as a source of its own.
    let is_distrust = error
        .source()
        .and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>())
        .and_then(|error| error.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
    if (error.is_io_error() && !is_distrust) || is_passing(error) {
        NodeError::Unreachable(text)
    } else {
        NodeError::Misconfigured(text)
    }
}

/// Whether the server only asks for patience. The redis crate keeps the error's code for some
/// commands, and only its text for others.
fn is_passing(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    matches!(code, "BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN")
        || [
            "Redis is busy",
            "Redis is loading",
            "Link with MASTER is down",
        ]
        .iter()
        .any(|words| detail.contains(words))
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    // Unacknowledged data on a dead path breaks the connection after this, not after a quarter
    // of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

/// The address as people write it, in lower case since host names do not distinguish it; without
/// user, password and database.
fn address_of(addr: &ConnectionAddr) -> Box<str> {
    match addr {
        ConnectionAddr::Unix(path) => path.display().to_string().into(),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}").to_lowercase().into()
        }
        other => other.to_string().to_lowercase().into(),
    }
}

fn tls_is_off() -> UrlError {
    UrlError("TLS needs the feature `tls-rustls` of redlock-tokio".into())
}

/// Rustls takes its cryptography from the process. Where the application has chosen none, or
/// where features of several crates disagree, it would panic at the first connection.
fn install_crypto_provider(addr: &ConnectionAddr) {
    #[cfg(feature = "tls-rustls")]
    if matches!(addr, ConnectionAddr::TcpTls { .. })
        && rustls::crypto::CryptoProvider::get_default().is_none()
    {
        // An error means that another thread was faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    #[cfg(not(feature = "tls-rustls"))]
    let _ = addr;
}

/// What is wrong with a node's URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; expected redis://[user:password@]host[:port][/database], rediss://.. or unix:///path"
)]
pub struct UrlError(Arc<str>);

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
