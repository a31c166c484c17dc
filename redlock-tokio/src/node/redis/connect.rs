//! Opening connections with the same settings to any address.

#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
use std::time::Duration;
use std::{convert::Infallible, sync::Arc};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisResult,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};

use super::{
    address::Endpoint,
    credentials::{CredentialsCallback, TwoCredentials},
    invalidations::Invalidations,
    opened::{Attachment, Opened},
    server_error::connect_error,
    tls::{Tls, TlsError, TlsOptions},
};
use crate::node::NodeError;

/// How connections are opened, to whatever address: user, password, database, protocol, and TLS or none.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    redis: RedisConnectionInfo,
    /// Asked for each new connection.
    credentials: Option<CredentialsCallback>,
    transport: Transport,
    /// Never to ask for RESP3.
    excludes_resp3: bool,
}

/// What carries the commands.
#[derive(Clone)]
pub(super) enum Transport {
    Plain,
    Tls(Tls),
}

/// All that the redis crate needs for a connection to one address.
pub(super) struct Recipe {
    pub(super) info: ConnectionInfo,
    pub(super) config: AsyncConnectionConfig,
}

impl ConnectionSettings {
    pub(super) fn new(
        redis: RedisConnectionInfo,
        transport: Transport,
        excludes_resp3: bool,
    ) -> Self {
        Self {
            redis,
            credentials: None,
            transport,
            excludes_resp3,
        }
    }

    /// Replaces the TLS options, if there are others.
    pub(super) fn with_tls(self, options: Option<&TlsOptions>) -> Result<Self, TlsError> {
        let Some(options) = options else {
            return Ok(self);
        };
        let tls = Tls::new(options)?;
        if !self.uses_tls() {
            return Err(TlsError::NotTls);
        }
        Ok(Self {
            transport: Transport::Tls(tls),
            ..self
        })
    }

    /// Asks the function, if there is one, for the credentials of each new connection.
    pub(super) fn with_credentials(
        self,
        callback: Option<CredentialsCallback>,
    ) -> Result<Self, TwoCredentials> {
        let is_fixed = self.redis.username().is_some() || self.redis.password().is_some();
        if callback.is_some() && is_fixed {
            return Err(TwoCredentials);
        }
        Ok(Self {
            credentials: callback,
            ..self
        })
    }

    /// Returns whether each connection asks for credentials of its own.
    pub(super) fn asks_for_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    /// Returns user, password and database.
    pub(super) fn redis(&self) -> &RedisConnectionInfo {
        &self.redis
    }

    pub(super) fn excludes_resp3(&self) -> bool {
        self.excludes_resp3
    }

    /// Opens a connection. It speaks RESP3 if the server does, unless the settings exclude that.
    ///
    /// May take any time. Dropping the future closes the connection.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if a server is there but objects, [`NodeError::Unreachable`] if none is,
    /// [`NodeError::Credentials`] if there are no credentials.
    pub(super) async fn open(&self, endpoint: &Endpoint) -> Result<Opened, NodeError> {
        let settings = self.with_fresh_credentials().await?;
        let opened = settings.open_in_newest_protocol(endpoint).await;
        opened.map_err(|error| connect_error(&error))
    }

    /// Opens a connection for other commands than those of locks. `on_message` is called for each message that is
    /// published on a channel to which the connection subscribes. It is never called if the server lacks RESP3.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub(super) async fn open_listening(
        &self,
        endpoint: &Endpoint,
        on_message: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, NodeError> {
        let settings = self.with_fresh_credentials().await?;
        let opened = settings.open_with_messages(endpoint, on_message).await;
        opened.map_err(|error| connect_error(&error))
    }

    async fn open_with_messages(
        &self,
        endpoint: &Endpoint,
        on_message: impl Fn() + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        if !self.excludes_resp3 {
            let config = plain_config().set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Message {
                    on_message();
                }
                Ok::<_, Infallible>(())
            });
            let recipe = self.recipe(endpoint, ProtocolVersion::RESP3, config)?;
            match recipe.connect().await {
                Err(error) if is_unknown_protocol(&error.to_string()) => {}
                connection => return connection,
            }
        }
        self.resp2(endpoint)?.connect().await
    }

    async fn with_fresh_credentials(&self) -> Result<Self, NodeError> {
        let mut settings = self.clone();
        if let Some(callback) = &self.credentials {
            let credentials = callback.ask().await?;
            let redis = settings.redis.set_username(credentials.user());
            settings.redis = redis.set_password(credentials.password());
        }
        Ok(settings)
    }

    async fn open_in_newest_protocol(&self, endpoint: &Endpoint) -> RedisResult<Opened> {
        if !self.excludes_resp3 {
            let (recipe, invalidations) = self.resp3(endpoint)?;
            match recipe.connect().await {
                Err(error) if is_unknown_protocol(&error.to_string()) => {}
                connection => return Ok(opened(connection?, Some(invalidations))),
            }
        }
        Ok(opened(self.resp2(endpoint)?.connect().await?, None))
    }

    /// Returns the recipe of a connection that gets no messages.
    pub(super) fn resp2(&self, endpoint: &Endpoint) -> RedisResult<Recipe> {
        self.recipe(endpoint, ProtocolVersion::RESP2, plain_config())
    }

    /// Returns the recipe of a connection, and what gets the server's messages on it.
    pub(super) fn resp3(&self, endpoint: &Endpoint) -> RedisResult<(Recipe, Arc<Invalidations>)> {
        let invalidations = Arc::new(Invalidations::default());
        let receiver = Arc::clone(&invalidations);
        let config = plain_config().set_push_sender(move |push| {
            receiver.handle(&push);
            Ok::<_, Infallible>(())
        });
        let recipe = self.recipe(endpoint, ProtocolVersion::RESP3, config)?;
        Ok((recipe, invalidations))
    }

    fn recipe(
        &self,
        endpoint: &Endpoint,
        protocol: ProtocolVersion,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Recipe> {
        let (addr, config) = match (endpoint, &self.transport) {
            (Endpoint::Unix(path), _) => (ConnectionAddr::Unix(path.to_path_buf()), config),
            (Endpoint::Tcp { host, port }, Transport::Plain) => {
                (ConnectionAddr::Tcp(host.to_string(), *port), config)
            }
            (Endpoint::Tcp { host, port }, Transport::Tls(tls)) => {
                (tls.addr(host, *port), tls.reach(host, config))
            }
        };
        let redis = self.redis.clone().set_protocol(protocol);
        let info = addr
            .into_connection_info()?
            .set_tcp_settings(tcp_settings())
            .set_redis_settings(without_name(redis));
        Ok(Recipe { info, config })
    }
}

impl Recipe {
    async fn connect(self) -> RedisResult<MultiplexedConnection> {
        let client = Client::open(self.info)?;
        let connection = client.get_multiplexed_async_connection_with_config(&self.config);
        connection.await
    }
}

/// Keeps the redis crate from telling the server its name and version by `CLIENT SETINFO`. A server notes in `ACL LOG`
/// that a user may not do that, and one before Redis 7.2 has no such right to grant.
pub(super) fn without_name(redis: RedisConnectionInfo) -> RedisConnectionInfo {
    redis.set_skip_set_lib_name()
}

fn opened(connection: MultiplexedConnection, invalidations: Option<Arc<Invalidations>>) -> Opened {
    Opened {
        connection,
        invalidations,
        attachment: Attachment::None,
    }
}

/// Returns the configuration of a connection without timers. The lane has its own time limits.
pub(super) fn plain_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
}

/// Returns whether the text of an error while connecting says that the server does not speak RESP3.
pub(super) fn is_unknown_protocol(error: &str) -> bool {
    // The redis crate writes the last text instead of the second.
    let words = ["NOPROTO", "unknown command", "doesn't support HELLO"];
    words.iter().any(|words| error.contains(words))
}

pub(super) fn tcp_settings() -> TcpSettings {
    // Nagle's algorithm would hold back a lock's small requests until the previous answer has come.
    let settings = TcpSettings::default().set_nodelay(true);
    // Unacknowledged data on a dead path breaks the connection after this time, not after a quarter
    // of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}
