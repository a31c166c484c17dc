//! Opening connections with the same settings to any address.

#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
use std::time::Duration;
use std::{convert::Infallible, fmt, path::Path, sync::Arc};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, io::tcp::TcpSettings,
};

use super::{invalidations::Invalidations, opened::Opened, server_error::connect_error};
use crate::node::NodeError;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Endpoint {
    Tcp { host: Arc<str>, port: u16 },
    Unix(Arc<Path>),
}

/// How connections are opened, to whatever address: user, password, database, protocol, and TLS or none.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    redis: RedisConnectionInfo,
    transport: Transport,
    /// Never to ask for RESP3.
    excludes_resp3: bool,
}

/// What carries the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Plain,
    Tls,
}

impl Endpoint {
    /// Returns the endpoint of an address, or `None` if the address is of an unknown kind.
    pub(super) fn of(addr: &ConnectionAddr) -> Option<Self> {
        match addr {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self::Tcp {
                    host: host.as_str().into(),
                    port: *port,
                })
            }
            ConnectionAddr::Unix(path) => Some(Self::Unix(path.as_path().into())),
            _ => None,
        }
    }
}

/// The address as people write it, in lower case since host names do not distinguish it.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp { host, port } if host.contains(':') => {
                write!(f, "[{}]:{port}", host.to_lowercase())
            }
            Self::Tcp { host, port } => write!(f, "{}:{port}", host.to_lowercase()),
        }
    }
}

impl ConnectionSettings {
    pub(super) fn new(
        redis: RedisConnectionInfo,
        transport: Transport,
        excludes_resp3: bool,
    ) -> Self {
        if transport == Transport::Tls {
            install_crypto_provider();
        }
        Self {
            redis,
            transport,
            excludes_resp3,
        }
    }

    #[allow(
        dead_code,
        reason = "for nodes that get an address later than their settings"
    )]
    /// Opens a connection. It speaks RESP3 if the server does, unless the settings exclude that.
    ///
    /// May take any time. Dropping the future closes the connection.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if a server is there but objects, [`NodeError::Unreachable`] if none is.
    #[allow(
        dead_code,
        reason = "for nodes that get an address later than their settings"
    )]
    pub(super) async fn open(&self, endpoint: &Endpoint) -> Result<Opened, NodeError> {
        if !self.excludes_resp3 {
            match self.open_resp3(endpoint).await {
                Err(error) if is_unknown_protocol(&error) => {}
                opened => return opened.map_err(|error| connect_error(&error)),
            }
        }
        self.open_resp2(endpoint)
            .await
            .map_err(|error| connect_error(&error))
    }

    async fn open_resp3(&self, endpoint: &Endpoint) -> RedisResult<Opened> {
        let (config, invalidations) = resp3_config();
        let client = Client::open(self.resp3_info(endpoint)?)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Opened {
            connection: connection.await?,
            invalidations: Some(invalidations),
            place: None,
        })
    }

    async fn open_resp2(&self, endpoint: &Endpoint) -> RedisResult<Opened> {
        let config = plain_config();
        let client = Client::open(self.info(endpoint)?)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Opened {
            connection: connection.await?,
            invalidations: None,
            place: None,
        })
    }

    pub(super) fn excludes_resp3(&self) -> bool {
        self.excludes_resp3
    }

    /// Returns the settings for one address in the form of the redis crate, without RESP3.
    pub(super) fn info(&self, endpoint: &Endpoint) -> RedisResult<ConnectionInfo> {
        let redis = self.redis.clone().set_protocol(ProtocolVersion::RESP2);
        let info = self.addr(endpoint).into_connection_info()?;
        let info = info.set_tcp_settings(tcp_settings());
        Ok(info.set_redis_settings(redis))
    }

    /// Returns the settings for one address in the form of the redis crate, with RESP3.
    pub(super) fn resp3_info(&self, endpoint: &Endpoint) -> RedisResult<ConnectionInfo> {
        let info = self.info(endpoint)?;
        let redis = info.redis_settings().clone();
        Ok(info.set_redis_settings(redis.set_protocol(ProtocolVersion::RESP3)))
    }

    fn addr(&self, endpoint: &Endpoint) -> ConnectionAddr {
        match endpoint {
            Endpoint::Unix(path) => ConnectionAddr::Unix(path.to_path_buf()),
            Endpoint::Tcp { host, port } => match self.transport {
                Transport::Plain => ConnectionAddr::Tcp(host.to_string(), *port),
                Transport::Tls => ConnectionAddr::TcpTls {
                    host: host.to_string(),
                    port: *port,
                    insecure: false,
                    tls_params: None,
                },
            },
        }
    }
}

/// Returns the configuration of a connection without timers. The lane has its own time limits.
pub(super) fn plain_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
}

/// Returns the configuration of a connection that speaks RESP3, and what gets the server's messages.
pub(super) fn resp3_config() -> (AsyncConnectionConfig, Arc<Invalidations>) {
    let invalidations = Arc::new(Invalidations::default());
    let receiver = Arc::clone(&invalidations);
    let config = plain_config().set_push_sender(move |push| {
        receiver.handle(&push);
        Ok::<_, Infallible>(())
    });
    (config, invalidations)
}

/// Returns whether an error while connecting says that the server does not speak RESP3.
pub(super) fn is_unknown_protocol(error: &RedisError) -> bool {
    let text = error.to_string();
    // The redis crate writes the last text instead of the second.
    let words = ["NOPROTO", "unknown command", "doesn't support HELLO"];
    words.iter().any(|words| text.contains(words))
}

fn tcp_settings() -> TcpSettings {
    // Nagle's algorithm would hold back a lock's small requests until the previous answer has come.
    let settings = TcpSettings::default().set_nodelay(true);
    // Unacknowledged data on a dead path breaks the connection after this time, not after a quarter
    // of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

/// Chooses the cryptography of rustls for the process, if the application has chosen none. Rustls would
/// panic at the first connection without a choice, or if features of several crates disagree.
fn install_crypto_provider() {
    #[cfg(feature = "tls-rustls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has chosen meanwhile.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
