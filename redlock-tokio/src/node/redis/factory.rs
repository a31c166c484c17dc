//! Connections that a function of the user opens.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, RedisResult, Value, aio::MultiplexedConnection, cmd,
};
use futures::future::try_join;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::{
    callback::{Callback, CallbackError, text_of},
    connect::{is_unknown_protocol, plain_config, tcp_settings, without_name},
    invalidations::Invalidations,
    opened::{Attachment, Opened},
    server_error::connect_error,
    tls::install_crypto_provider,
};
use crate::{log, node::NodeError, sync::Mutex};

/// The channel of an `UNSUBSCRIBE` that shows whether messages arrive. Nothing is ever published on it.
const ECHO: &str = "redlock:echo";

/// How many connections of a factory are remembered.
const REMEMBERED: usize = 16;

/// What a connection for a [`RedisNode`](crate::RedisNode) must be opened with. The argument of the function of
/// [`RedisNode::from_factory`](crate::RedisNode::from_factory).
///
/// The settings are for one connection. They contain the way on which the server reports that a lock is free.
#[must_use = "a connection without these settings reports no free locks"]
pub struct FactorySettings {
    config: AsyncConnectionConfig,
    protocol: ProtocolVersion,
    /// Ends with the session.
    session: watch::Receiver<()>,
}

impl FactorySettings {
    /// Connects to a server with these settings, for a factory that only has to find out the address or the
    /// credentials.
    ///
    /// Takes a URL, or the `ConnectionInfo` of the redis crate. The protocol and the TCP options of the settings
    /// replace those of `info`.
    ///
    /// # Errors
    ///
    /// Those of the redis crate. Return them as they are: the node knows by them whether a server is there.
    pub async fn connect(
        &self,
        info: impl IntoConnectionInfo,
    ) -> RedisResult<MultiplexedConnection> {
        install_crypto_provider();
        let info = info.into_connection_info()?;
        let redis = info.redis_settings().clone().set_protocol(self.protocol);
        let redis = without_name(redis);
        let info = info
            .set_redis_settings(redis)
            .set_tcp_settings(tcp_settings());
        let client = Client::open(info)?;
        let connection = client.get_multiplexed_async_connection_with_config(&self.config);
        connection.await
    }

    /// Speaks to a server over a stream of your own, such as a tunnel, or a connection with other TLS.
    ///
    /// `redis` has the credentials and the database. The protocol of the settings replaces that of `redis`. A TCP
    /// stream should have `TCP_NODELAY`. The stream is closed when the session ends, even if the server has
    /// stopped answering.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_over<S>(
        &self,
        stream: S,
        redis: RedisConnectionInfo,
    ) -> RedisResult<MultiplexedConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let redis = without_name(redis.set_protocol(self.protocol));
        let config = self.config.clone();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&redis, stream, config).await?;
        let mut session = self.session.clone();
        // The driver itself would wait for the answers of a silent server.
        tokio::spawn(async move {
            tokio::select! {
                biased; // The end comes first: a server that never stops sending would keep the task busy.
                _ = session.changed() => {}
                () = driver => {}
            }
        });
        Ok(connection)
    }

    /// Returns the settings in the form of the redis crate, for connections that neither [`connect`](Self::connect)
    /// nor [`connect_over`](Self::connect_over) can open: no time limits, and the sender for the server's messages.
    /// Change neither of them. The connection must speak the [`protocol`](Self::protocol).
    #[must_use]
    pub fn config(&self) -> AsyncConnectionConfig {
        self.config.clone()
    }

    /// Returns the protocol that the connection must speak. RESP3, unless the server has just refused RESP3.
    #[must_use]
    pub fn protocol(&self) -> ProtocolVersion {
        self.protocol
    }
}

impl fmt::Debug for FactorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactorySettings")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// Opens connections by a function of the user.
pub(super) struct Factory {
    function: Callback<FactorySettings, MultiplexedConnection>,
    known: Mutex<VecDeque<Identity>>,
    has_warned: AtomicBool,
}

/// One connection of one server process.
#[derive(PartialEq, Eq)]
struct Identity {
    run_id: String,
    client_id: i64,
}

/// A connection that a function returned, and what came of it so far.
struct Made {
    connection: MultiplexedConnection,
    /// Gets the messages, if the function used the settings. `None` without RESP3.
    invalidations: Option<Arc<Invalidations>>,
    has_echo: Arc<AtomicBool>,
    session: watch::Sender<()>,
}

impl Factory {
    pub(super) fn new(function: Callback<FactorySettings, MultiplexedConnection>) -> Self {
        Self {
            function,
            known: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Opens a connection, and checks that it is new. Takes a round trip more than other connections.
    pub(super) async fn open(&self, node: &str) -> Result<Opened, NodeError> {
        match self.make(ProtocolVersion::RESP3).await {
            Ok(made) => self.check(made, node).await,
            Err(error) if is_unknown_protocol(&text_of(&*error)) => {
                let made = self.make(ProtocolVersion::RESP2).await;
                self.check(made.map_err(|error| failure(&*error))?, node)
                    .await
            }
            Err(error) => Err(failure(&*error)),
        }
    }

    async fn make(&self, protocol: ProtocolVersion) -> Result<Made, CallbackError> {
        let has_echo = Arc::new(AtomicBool::new(false));
        let (config, invalidations) = match protocol {
            ProtocolVersion::RESP2 => (plain_config(), None),
            _ => {
                let (config, invalidations) = resp3_config(Arc::clone(&has_echo));
                (config, Some(invalidations))
            }
        };
        let (session, session_receiver) = watch::channel(());
        let settings = FactorySettings {
            config,
            protocol,
            session: session_receiver,
        };
        Ok(Made {
            connection: self.function.call(settings).await?,
            invalidations,
            has_echo,
            session,
        })
    }

    async fn check(&self, made: Made, node: &str) -> Result<Opened, NodeError> {
        let identity = identity_and_echo(made.connection.clone()).await;
        if let Some(identity) = identity.map_err(|error| connect_error(&error))? {
            self.remember(identity)?;
        }
        let has_echo = made.has_echo.load(Ordering::Acquire);
        if made.invalidations.is_some() && !has_echo {
            self.warn_of_silence(node);
        }
        Ok(Opened {
            connection: made.connection,
            invalidations: made.invalidations.filter(|_| has_echo),
            attachment: Attachment::Stream {
                _session: made.session,
            },
        })
    }

    fn warn_of_silence(&self, node: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                target: "redlock",
                node,
                "the server's messages do not arrive over the factory's connection, so waiters ask from time to time: \
                 open each connection with the given settings, in RESP3, and let the client use UNSUBSCRIBE"
            );
        }
    }

    /// Notes a connection. Fails if the factory has returned it before.
    fn remember(&self, identity: Identity) -> Result<(), NodeError> {
        let mut known = self.known.lock();
        if known.contains(&identity) {
            return Err(NodeError::Misconfigured(
                "the factory returned a connection that it had returned before: it must open a new one each time"
                    .into(),
            ));
        }
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(identity);
        Ok(())
    }
}

/// Returns a configuration whose messages go to the invalidations, and which notes the echo.
fn resp3_config(has_echo: Arc<AtomicBool>) -> (AsyncConnectionConfig, Arc<Invalidations>) {
    let invalidations = Arc::new(Invalidations::default());
    let receiver = Arc::clone(&invalidations);
    let config = plain_config().set_push_sender(move |push| {
        if is_echo(&push) {
            has_echo.store(true, Ordering::Release);
        }
        receiver.handle(&push);
        Ok::<_, Infallible>(())
    });
    (config, invalidations)
}

/// Asks which connection this is, and makes the server send a message.
///
/// In RESP3, the answer to `UNSUBSCRIBE` is a message like those that report a free lock. It takes the same way
/// through the redis crate, and needs no right to a channel.
async fn identity_and_echo(mut connection: MultiplexedConnection) -> RedisResult<Option<Identity>> {
    let mut other = connection.clone();
    let mut unsubscribe = cmd("UNSUBSCRIBE");
    unsubscribe.arg(ECHO);
    let mut pipeline = Pipeline::new();
    pipeline.cmd("CLIENT").arg("ID");
    pipeline.cmd("INFO").arg("server");
    let (_, replies) = try_join(
        other.send_packed_command(&unsubscribe),
        connection.send_packed_commands(&pipeline, 0, pipeline.len()),
    )
    .await?;
    let [Value::Int(client_id), info] = &replies[..] else {
        return Ok(None);
    };
    Ok(run_id(info).map(|run_id| Identity {
        run_id,
        client_id: *client_id,
    }))
}

fn run_id(info: &Value) -> Option<String> {
    let text = match info {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => return None,
    };
    let run_id = text.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(run_id.trim().to_owned())
}

fn is_echo(push: &PushInfo) -> bool {
    push.kind == PushKind::Unsubscribe
        && matches!(push.data.first(), Some(Value::BulkString(channel)) if channel == ECHO.as_bytes())
}

/// Returns what the error of a factory means. An error of the redis crate means the same as elsewhere, even if it
/// is the source of another.
fn failure(error: &(dyn Error + 'static)) -> NodeError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<RedisError>() {
            return connect_error(error);
        }
        cause = error.source();
    }
    NodeError::Unreachable(text_of(error))
}
