use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use deadpool_redis::{
    Connection, Manager, Pool, PoolError, Runtime,
    redis::{
        self, AsyncConnectionConfig, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisError,
        Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
    },
};
use futures::{FutureExt, future::BoxFuture};
use redlock_core::{FencingToken, Operation};

use super::{
    Answer, Command, Node, NodeError, Session, Vote,
    script::{self, Script},
};

/// How often a connection is looked at that may be idle. A node that restarts, or a middlebox that
/// forgets idle connections, is then found out before the next request is.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A Redis (or Valkey) master, reached through a [`deadpool_redis`] pool.
///
/// The pool creates connections: it knows the address, the credentials, the database, TLS and any
/// hooks. A lock takes one connection from it and keeps that until it breaks.
pub struct RedisNode {
    address: Box<str>,
    pool: Pool,
}

impl RedisNode {
    /// Creates a node from a URL, as the [`redis`] crate reads it:
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`
    /// - `rediss://..` for TLS (feature `tls-rustls`)
    /// - `unix:///path/to/socket[?db=1&user=..&pass=..]`
    ///
    /// Does not connect yet.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the URL, without repeating it: it may hold a password.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let info = url.trim().into_connection_info().map_err(|error| {
            let text = error.to_string();
            UrlError(if text.contains("with TLS, the feature is not enabled") {
                "TLS needs the feature `tls-rustls` of redlock-tokio".into()
            } else {
                text.into()
            })
        })?;
        install_crypto_provider(info.addr());
        let address = address_of(info.addr());
        // Nagle's algorithm would hold a lock's small requests back for the last one's answer.
        let info = info.set_tcp_settings(tcp_settings());
        // The lane has its own time limits, so requests and connects need no timer of their own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        let pool = Manager::new_with_config(info, config)
            .map_err(|error| UrlError(error.to_string().into()))
            .and_then(|manager| {
                Pool::builder(manager)
                    .runtime(Runtime::Tokio1)
                    // One in use, and one being opened in its stead.
                    .max_size(2)
                    .build()
                    .map_err(|error| UrlError(error.to_string().into()))
            })?;
        Ok(Self { address, pool })
    }

    /// Creates a node from a pool of your own. `address` is what errors and logs call it.
    #[must_use]
    pub fn from_pool(address: impl Into<String>, pool: Pool) -> Self {
        Self {
            address: address.into().into(),
            pool,
        }
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let connection = self.pool.get().await.map_err(|error| match error {
                PoolError::Backend(error) => connect_error(&error),
                other => NodeError::Unreachable(other.to_string().into()),
            })?;
            let mut session = RedisSession {
                multiplexed: MultiplexedConnection::clone(&connection),
                pooled: Some(connection),
            };
            session.load_scripts().await?;
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

struct RedisSession {
    multiplexed: MultiplexedConnection,
    /// Keeps the pool's slot while the session lives.
    pooled: Option<Connection>,
}

impl RedisSession {
    /// Loads the scripts, so that `EVALSHA` finds them. A server that does not allow it is no
    /// worse off: `execute` falls back to `EVAL`.
    async fn load_scripts(&mut self) -> Result<(), NodeError> {
        let mut pipeline = Pipeline::new();
        for script in script::all() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        let replies = self
            .multiplexed
            .send_packed_commands(&pipeline, 0, pipeline.len())
            .await
            .map_err(|error| connect_error(&error))?;
        for reply in replies {
            if let Value::ServerError(error) = reply
                && error.code() == "NOAUTH"
            {
                return Err(NodeError::Misconfigured("it asks for a password".into()));
            }
        }
        Ok(())
    }
}

impl Session for RedisSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let mut connection = self.multiplexed.clone();
        let mut pipeline = Pipeline::with_capacity(batch.len());
        let mut scripted = false;
        for command in batch {
            scripted |= !matches!(command.operation, Operation::Acquire { fence: None, .. });
            pipeline.add_command(encode(command, Scripts::ByHash));
        }
        // Only scripts can be missing, so only with them commands may be needed again.
        let again: Vec<Command> = if scripted { batch.to_vec() } else { Vec::new() };
        let fenced: Vec<bool> = batch.iter().map(is_fenced).collect();
        async move {
            let values = round_trip(&mut connection, &pipeline).await?;
            let mut answers: Vec<Answer> = values
                .into_iter()
                .zip(&fenced)
                .map(|(value, fenced)| answer(value, *fenced))
                .collect();
            let missing: Vec<usize> = (0..again.len())
                .filter(|&index| is_no_script(&answers[index]))
                .collect();
            if !missing.is_empty() {
                // The server was restarted, or somebody flushed its scripts.
                let mut pipeline = Pipeline::with_capacity(missing.len());
                for &index in &missing {
                    pipeline.add_command(encode(&again[index], Scripts::InFull));
                }
                let values = round_trip(&mut connection, &pipeline).await?;
                for (index, value) in missing.into_iter().zip(values) {
                    answers[index] = answer(value, fenced[index]);
                }
            }
            Ok(answers)
        }
        .boxed()
    }

    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        heartbeat(self.multiplexed.clone()).boxed()
    }
}

async fn heartbeat(mut connection: MultiplexedConnection) -> NodeError {
    let ping = redis::cmd("PING");
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        // Whatever it answers, it is there. If it does not, a request will time out on it.
        if let Err(error) = connection.send_packed_command(&ping).await
            && (error.is_io_error() || error.is_unrecoverable_error())
        {
            return NodeError::Disconnected(error.to_string().into());
        }
    }
}

impl Drop for RedisSession {
    fn drop(&mut self) {
        if let Some(connection) = self.pooled.take() {
            // A session ends when its connection is of no more use, so it must not go back.
            drop(Connection::take(connection));
        }
    }
}

#[derive(Clone, Copy)]
enum Scripts {
    ByHash,
    InFull,
}

fn encode(command: &Command, scripts: Scripts) -> Cmd {
    let key = command.key.as_bytes();
    match command.operation {
        Operation::Acquire {
            token,
            ttl,
            fence: None,
        } => {
            let mut cmd = redis::cmd("SET");
            cmd.arg(key).arg(&token.to_ascii()[..]);
            cmd.arg("NX").arg("PX").arg(ttl.as_millis());
            cmd
        }
        Operation::Acquire {
            token,
            ttl,
            fence: Some(fence),
        } => {
            let mut cmd = eval(&script::ACQUIRE_FENCED, scripts);
            cmd.arg(2).arg(key).arg(counter_of(key));
            cmd.arg(&token.to_ascii()[..]).arg(ttl.as_millis());
            cmd.arg(fence.get());
            cmd
        }
        Operation::Fence { token, fence } => {
            let mut cmd = eval(&script::FENCE, scripts);
            cmd.arg(2).arg(key).arg(counter_of(key));
            cmd.arg(&token.to_ascii()[..]).arg(fence.get());
            cmd
        }
        Operation::Extend { token, ttl } => {
            let mut cmd = eval(&script::EXTEND, scripts);
            cmd.arg(1).arg(key).arg(&token.to_ascii()[..]);
            cmd.arg(ttl.as_millis());
            cmd
        }
        Operation::Release { token } => {
            let mut cmd = eval(&script::RELEASE, scripts);
            cmd.arg(1).arg(key).arg(&token.to_ascii()[..]);
            cmd
        }
    }
}

fn eval(script: &Script, scripts: Scripts) -> Cmd {
    let (name, argument) = match scripts {
        Scripts::ByHash => ("EVALSHA", script.hash()),
        Scripts::InFull => ("EVAL", script.source()),
    };
    let mut cmd = redis::cmd(name);
    cmd.arg(argument);
    cmd
}

async fn round_trip(
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, NodeError> {
    let expected = pipeline.len();
    let values = connection
        .send_packed_commands(pipeline, 0, expected)
        .await
        .map_err(|error| NodeError::Disconnected(error.to_string().into()))?;
    if values.len() == expected {
        Ok(values)
    } else {
        let text = format!("{} replies to {expected} commands", values.len());
        Err(NodeError::Unexpected(text.into()))
    }
}

/// The key of a lock's fencing counter.
fn counter_of(key: &[u8]) -> Vec<u8> {
    [key, b":fence"].concat()
}

fn is_fenced(command: &Command) -> bool {
    match command.operation {
        Operation::Acquire { fence, .. } => fence.is_some(),
        Operation::Fence { .. } => true,
        Operation::Extend { .. } | Operation::Release { .. } => false,
    }
}

fn answer(value: Value, fenced: bool) -> Answer {
    match value {
        Value::BulkString(text) if fenced => match str::from_utf8(&text).map(str::parse) {
            Ok(Ok(counter)) => Ok(Vote::Outbid {
                counter: FencingToken::new(counter),
            }),
            _ => Err(NodeError::Unexpected("a counter that is no number".into())),
        },
        Value::Okay | Value::Int(1) => Ok(Vote::Granted),
        Value::Nil | Value::Int(0) => Ok(Vote::Denied),
        Value::ServerError(error) => Err(NodeError::Refused {
            code: error.code().into(),
            message: shorten(error.details().unwrap_or_default().to_owned()).into(),
        }),
        other => Err(NodeError::Unexpected(shorten(format!("{other:?}")).into())),
    }
}

fn is_no_script(answer: &Answer) -> bool {
    matches!(answer, Err(NodeError::Refused { code, .. }) if &**code == "NOSCRIPT")
}

/// A server can answer with anything of any length; an error message cannot.
fn shorten(mut text: String) -> String {
    const LONGEST: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push_str("..");
    }
    text
}

/// What an error while connecting means: that nobody is there, or that somebody is and objects.
fn connect_error(error: &RedisError) -> NodeError {
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

    #[test]
    fn answers_to_what_servers_say() {
        let plain = |value| answer(value, false);
        assert_eq!(plain(Value::Okay), Ok(Vote::Granted));
        assert_eq!(plain(Value::Int(1)), Ok(Vote::Granted));
        assert_eq!(plain(Value::Nil), Ok(Vote::Denied));
        assert_eq!(plain(Value::Int(0)), Ok(Vote::Denied));
        let number = Value::BulkString(b"41".to_vec());
        assert!(plain(number.clone()).is_err(), "not what a SET answers");
        let counter = FencingToken::new(41);
        assert_eq!(answer(number, true), Ok(Vote::Outbid { counter }));
        let Err(NodeError::Unexpected(text)) = plain(Value::BulkString(vec![b'x'; 100_000])) else {
            panic!("an odd answer is no vote");
        };
        assert!(text.len() < 300);
    }
}
