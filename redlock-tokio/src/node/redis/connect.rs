//! Opening connections with the same settings to any address.

#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
use std::time::Duration;
use std::{convert::Infallible, future, sync::Arc};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisResult, Value, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::{
    address::Endpoint,
    callback::{Callback, text_of},
    credentials::CredentialsCallback,
    invalidations::Invalidations,
    options::NodeOptions,
    server_error::connect_error,
    tls::{Tls, TlsOptions},
    url::UrlError,
};
use crate::node::NodeError;

/// How connections are opened, to whatever address: user, password, database, protocol, and TLS or none.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    redis: RedisConnectionInfo,
    credentials: Option<CredentialsCallback>,
    transport: Transport,
    pub(super) excludes_resp3: bool,
}

/// The transport of the commands.
#[derive(Clone)]
enum Transport {
    Plain,
    Tls(Tls),
    /// A function of the user opens a stream.
    Stream(StreamCallback),
}

/// The stream that carries the commands of one connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) type BoxedStream = Box<dyn Stream>;

/// Asks the user of this crate for the stream of a new connection.
pub(crate) type StreamCallback = Callback<BoxedStream>;

/// A new connection, which one session uses alone.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    /// Gets the messages that the server sends on this connection without being asked. `None` without RESP3.
    pub(super) invalidations: Option<Arc<Invalidations>>,
    pub(super) attachment: Attachment,
}

/// Dropped with the session. It then closes a stream of the user, or gives up the connection's place in a pool.
pub(super) type Attachment = Option<Box<dyn Send>>;

impl ConnectionSettings {
    /// Joins what a URL says with what the builder sets for all nodes.
    pub(super) fn new(
        redis: RedisConnectionInfo,
        uses_tls: bool,
        excludes_resp3: bool,
        options: &NodeOptions,
    ) -> Result<Self, UrlError> {
        let is_fixed = redis.username().is_some() || redis.password().is_some();
        if is_fixed && options.credentials.is_some() {
            return Err(UrlError::of_options(
                "there are credentials in the URL and in the builder: leave one of them out",
            ));
        }
        let transport = match (&options.stream, &options.tls) {
            (Some(_), _) if uses_tls => {
                return Err(UrlError::of_options(
                    "a stream of your own brings its own TLS: write redis:// instead of rediss://",
                ));
            }
            (_, Some(_)) if !uses_tls => {
                let text = "TLS options need a URL that begins with rediss://";
                return Err(UrlError::of_options(text));
            }
            (Some(open), _) => Transport::Stream(open.clone()),
            (None, Some(tls)) => Transport::Tls(Tls::new(tls)?),
            (None, None) if uses_tls => Transport::Tls(Tls::new(&TlsOptions::new())?),
            (None, None) => Transport::Plain,
        };
        Ok(Self {
            redis,
            credentials: options.credentials.clone(),
            transport,
            excludes_resp3,
        })
    }

    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    pub(super) fn redis(&self) -> &RedisConnectionInfo {
        &self.redis
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
        let invalidations = Arc::new(Invalidations::default());
        let config = invalidations.config();
        let (connection, attachment, protocol) = self.open_newest(endpoint, config).await?;
        Ok(Opened {
            connection,
            invalidations: (protocol != ProtocolVersion::RESP2).then_some(invalidations),
            attachment,
        })
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
        let config = plain_config().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                on_message();
            }
            Ok::<_, Infallible>(())
        });
        let (connection, ..) = self.open_newest(endpoint, config).await?;
        Ok(connection)
    }

    /// Opens a connection in RESP3 with this configuration, or in RESP2 if the server or the settings exclude RESP3.
    async fn open_newest(
        &self,
        endpoint: &Endpoint,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Attachment, ProtocolVersion), NodeError> {
        let settings = self.with_fresh_credentials(endpoint).await?;
        if !self.excludes_resp3 {
            let protocol = ProtocolVersion::RESP3;
            match unless_shut_down(settings.open_as(endpoint, protocol, config)).await {
                Err(NodeError::Misconfigured(text)) if is_unknown_protocol(&text) => {}
                opened => {
                    let (connection, attachment) = opened?;
                    return Ok((connection, attachment, protocol));
                }
            }
        }
        let protocol = ProtocolVersion::RESP2;
        let opened = settings.open_as(endpoint, protocol, plain_config());
        let (connection, attachment) = unless_shut_down(opened).await?;
        Ok((connection, attachment, protocol))
    }

    async fn open_as(
        &self,
        endpoint: &Endpoint,
        protocol: ProtocolVersion,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Attachment), NodeError> {
        // A server notes in `ACL LOG` that a user may not tell it the client's name by `CLIENT SETINFO`, and one before
        // Redis 7.2 has no such right to grant.
        let redis = self.redis.clone().set_protocol(protocol);
        let redis = redis.set_skip_set_lib_name();
        let (addr, config) = match (endpoint, &self.transport) {
            (_, Transport::Stream(open)) => {
                let stream = open.call(endpoint).await;
                let stream = stream.map_err(|error| NodeError::Unreachable(text_of(&*error)))?;
                let opened = connect_over(stream, &redis, config).await;
                return opened.map_err(|error| connect_error(&error));
            }
            (Endpoint::Unix(path), _) => (ConnectionAddr::Unix(path.to_path_buf()), config),
            (Endpoint::Tcp { host, port }, Transport::Plain) => {
                (ConnectionAddr::Tcp(host.to_string(), *port), config)
            }
            (Endpoint::Tcp { host, port }, Transport::Tls(tls)) => {
                (tls.addr(host, *port), tls.reach(host, config))
            }
        };
        let connect = async {
            let info = addr
                .into_connection_info()?
                .set_tcp_settings(tcp_settings());
            let client = Client::open(info.set_redis_settings(redis))?;
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            connection.await
        };
        let connection = connect.await;
        Ok((connection.map_err(|error| connect_error(&error))?, None))
    }

    async fn with_fresh_credentials(&self, endpoint: &Endpoint) -> Result<Self, NodeError> {
        let mut settings = self.clone();
        if let Some(callback) = &self.credentials {
            let credentials = callback.ask(endpoint).await?;
            let redis = settings.redis.set_username(credentials.user());
            settings.redis = redis.set_password(credentials.password());
        }
        Ok(settings)
    }
}

/// Sends commands, and returns the replies.
pub(super) async fn send(
    connection: &mut MultiplexedConnection,
    commands: &Pipeline,
) -> RedisResult<Vec<Value>> {
    let replies = connection.send_packed_commands(commands, 0, commands.len());
    unless_shut_down(replies).await
}

/// Waits for what a server answers, and returns no error while the runtime shuts down.
///
/// The runtime may drop the task that reads a connection before the one that waits. No server has failed then, so nobody
/// must be told so: this waits until its own task is dropped, too.
pub(super) async fn unless_shut_down<T, E>(
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let answer = answer.await;
    // A runtime that shuts down cancels each new task.
    if answer.is_err() && tokio::spawn(async {}).await.is_err() {
        future::pending::<()>().await;
    }
    answer
}

/// Speaks to a server over a stream, which is closed when the attachment is dropped.
async fn connect_over(
    stream: BoxedStream,
    redis: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Attachment)> {
    let (connection, driver) =
        MultiplexedConnection::new_with_config(redis, stream, config).await?;
    let (session, mut end) = watch::channel(());
    // The driver itself would wait for the answers of a silent server.
    tokio::spawn(async move {
        tokio::select! {
            biased; // The end comes first: a server that never stops sending would keep the task busy.
            _ = end.changed() => {}
            () = driver => {}
        }
    });
    Ok((connection, Some(Box::new(session))))
}

/// Returns the configuration of a connection without timers. The lane has its own time limits.
pub(super) fn plain_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
}

/// Returns whether the text of an error while connecting says that the server does not speak RESP3.
fn is_unknown_protocol(error: &str) -> bool {
    // The redis crate writes the last text instead of the second.
    let words = ["NOPROTO", "unknown command", "doesn't support HELLO"];
    words.iter().any(|words| error.contains(words))
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::{io::duplex, runtime};

    use super::*;

    #[test]
    fn a_runtime_that_shuts_down_is_no_failure_of_a_server() {
        let mut builder = runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).build().unwrap();
        let handle = runtime.handle().clone();
        let redis = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut commands = Pipeline::new();
        commands.cmd("PING");
        let open = async || {
            let (stream, server) = duplex(64);
            let opened = connect_over(Box::new(stream), &redis, plain_config()).await;
            (opened.unwrap(), server)
        };
        let answer = runtime.block_on(async {
            let ((mut connection, _), server) = open().await;
            drop(server);
            send(&mut connection, &commands).await
        });
        assert!(answer.is_err(), "{answer:?}");

        let ((mut connection, _attachment), _server) = runtime.block_on(open());
        drop(runtime);
        let _entered = handle.enter();
        let answer = send(&mut connection, &commands).now_or_never();
        assert!(answer.is_none(), "{answer:?}");
    }
}
