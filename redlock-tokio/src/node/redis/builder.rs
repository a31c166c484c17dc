use std::fmt;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    RedisNode,
    callback::{Callback, CallbackError},
    connect::{BoxedStream, StreamCallback},
    credentials::{Credentials, CredentialsCallback},
    tls::{TlsError, TlsOptions},
    url::{NodeUrl, UrlError},
};

/// Builds a [`RedisNode`] that needs more than a URL. Made by [`RedisNode::builder`].
#[must_use = "a builder does nothing until built"]
pub struct RedisNodeBuilder {
    url: Result<NodeUrl, UrlError>,
    credentials: Option<CredentialsCallback>,
    tls: Option<TlsOptions>,
    stream: Option<StreamCallback>,
}

impl RedisNode {
    /// Returns a builder of a node with this URL. [`from_url`](Self::from_url) lists the forms of a URL.
    ///
    /// ```
    /// use redlock_tokio::{Credentials, RedisNode, node::Node};
    ///
    /// async fn fresh_token() -> Result<String, std::io::Error> {
    ///     // .. ask the cloud for it
    /// #   Ok("secret".to_owned())
    /// }
    ///
    /// // Does not connect yet.
    /// let node = RedisNode::builder("redis://redis-a.internal")
    ///     .credentials(async || Ok::<_, std::io::Error>(Credentials::new("locker", fresh_token().await?)))
    ///     .build()?;
    /// assert_eq!(node.address(), "redis-a.internal:6379");
    /// # Ok::<_, redlock_tokio::RedisNodeError>(())
    /// ```
    pub fn builder(url: &str) -> RedisNodeBuilder {
        RedisNodeBuilder {
            url: NodeUrl::parse(url),
            credentials: None,
            tls: None,
            stream: None,
        }
    }
}

impl RedisNodeBuilder {
    /// Sets the function that is asked for the credentials of each new connection, for passwords that rotate and for
    /// tokens that expire (AWS IAM, Microsoft Entra ID).
    ///
    /// The function and the connection together have the
    /// [`connect_timeout`](crate::RedlockBuilder::connect_timeout), 1 s by default. The future is dropped when the
    /// time is over. So let the function return a token that the program renews in the background, or raise the
    /// timeout. No lock waits for the function: locks use the other nodes meanwhile.
    ///
    /// If the function fails or panics, the node has [`NodeError::Credentials`](crate::NodeError::Credentials), with
    /// the text of the error and of its sources. Logs show that text, so the text must not have secrets. The function
    /// is called again with the next attempt to connect, at least once a second.
    ///
    /// A connection keeps the credentials with which it was opened. A server that closes a connection because its
    /// token has expired costs the votes that are on their way: the node is connected to again at once, with a new
    /// token. Let the tokens of the nodes expire at different times, so that a majority is always connected.
    ///
    /// ```
    /// # use redlock_tokio::{Credentials, RedisNode};
    /// # use std::sync::Arc;
    /// # async fn rotating_password() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # fn nodes() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://a", "redis://b", "redis://c"].map(|url| {
    ///     let ask = async || rotating_password().await.map(|it| Credentials::new("locker", it));
    ///     RedisNode::builder(url).credentials(ask).build()
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<CallbackError>,
    {
        self.credentials = Some(Callback::new(ask));
        self
    }

    /// Sets how the connections check the server, and which certificate they show. The URL must begin with
    /// `rediss://`. Needs the feature `tls-rustls`.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Sets the function that opens the stream of each new connection: a tunnel, a proxy, or TLS of your own. The URL
    /// has the credentials and the database, and its host is the node's name in errors and logs.
    ///
    /// The stream must lead to *one* server, each time to the same. A balancer that spreads the commands of a connection
    /// over several servers would let a release overtake the request that sets its key. A TCP stream should have
    /// `TCP_NODELAY`. The stream is closed when the connection is given up, even if the server has stopped answering.
    ///
    /// The function has the [`connect_timeout`](crate::RedlockBuilder::connect_timeout), 1 s by default, and is dropped
    /// when the time is over. If it fails or panics, the node is [`NodeError::Unreachable`](crate::NodeError::Unreachable)
    /// with the text of the error and of its sources. Logs show that text, so the text must not have secrets. If the
    /// server knows no RESP3, a second stream is opened for RESP2.
    ///
    /// ```
    /// use redlock_tokio::RedisNode;
    /// use tokio::io::DuplexStream;
    ///
    /// async fn tunnel_to(host: &str) -> std::io::Result<DuplexStream> {
    ///     // .. any stream of bytes
    /// #   let _ = host;
    /// #   Ok(tokio::io::duplex(64).0)
    /// }
    ///
    /// let node = RedisNode::builder("redis://:secret@redis-a.internal")
    ///     .stream(async || tunnel_to("redis-a.internal").await)
    ///     .build()?;
    /// # Ok::<_, redlock_tokio::RedisNodeError>(())
    /// ```
    pub fn stream<F, Fut, S, E>(mut self, open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<CallbackError>,
    {
        self.stream = Some(Callback::new(move || {
            let stream = open();
            async move { stream.await.map(|stream| Box::new(stream) as BoxedStream) }
        }));
        self
    }

    /// Builds the node. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`RedisNodeError`] says what cannot be used. No error repeats a password or a private key.
    pub fn build(self) -> Result<RedisNode, RedisNodeError> {
        let NodeUrl { endpoint, settings } = self.url?;
        let settings = settings
            .with_tls(self.tls.as_ref())?
            .with_credentials(self.credentials)
            .ok_or(RedisNodeError::TwoCredentials)?
            .with_streams(self.stream)
            .ok_or(RedisNodeError::TlsOverStream)?;
        Ok(RedisNode::at(NodeUrl { endpoint, settings }))
    }
}

impl fmt::Debug for RedisNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.url.as_ref().map(NodeUrl::name);
        f.debug_struct("RedisNodeBuilder")
            .field("address", &address)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Why a [`RedisNode`] could not be built. Never repeats a password or a private key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisNodeError {
    /// The URL, or an address, cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The TLS options cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There are a user or a password, and a function that returns both.
    #[error("there are credentials, and a function that returns them: leave one of them out")]
    TwoCredentials,
    /// There is a function that opens streams, and the URL asks for TLS.
    #[error("a stream of your own brings its own TLS: write redis:// instead of rediss://")]
    TlsOverStream,
}

impl RedisNodeError {
    /// Returns the error of a node that has nothing but a URL.
    pub(crate) fn into_url_error(self) -> UrlError {
        match self {
            Self::Url(error) => error,
            other => UrlError::new(other.to_string()),
        }
    }
}
