use std::{collections::BTreeMap, future::ready, mem, sync::Arc};

use deadpool_redis::Pool;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    BuildError, Clock, Credentials, Durability, MemoryNode, PoolMessages, RedlockBuilder,
    TlsOptions,
    node::{
        Node, RedisNode,
        redis::{BoxedStream, Callback, CallbackError, UrlNodes},
    },
};

/// What a builder was given.
pub(super) enum Given {
    Url(String),
    Node(Arc<dyn Node>),
}

/// One text with URLs, or several. `Kind` keeps the two implementations apart.
pub trait NodeUrls<Kind> {
    #[doc(hidden)]
    fn urls(self) -> Vec<String>;
}

#[derive(Debug)]
pub struct One;

#[derive(Debug)]
pub struct Several;

impl<S: AsRef<str>> NodeUrls<One> for S {
    fn urls(self) -> Vec<String> {
        urls_in(self.as_ref())
    }
}

impl<I> NodeUrls<Several> for I
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    /// A text without a URL counts as one that cannot be used: one of several variables may be empty by mistake.
    fn urls(self) -> Vec<String> {
        let mut urls = Vec::new();
        for text in self {
            let before = urls.len();
            urls.extend(urls_in(text.as_ref()));
            if urls.len() == before {
                urls.push(String::new());
            }
        }
        urls
    }
}

/// The nodes.
impl RedlockBuilder {
    /// Adds nodes by their URLs: one text, such as the value of an environment variable, or several. Commas, spaces or
    /// line breaks in a text separate URLs.
    ///
    /// - `redis://[user[:password]@]host[:port][/database]`: a master
    /// - `unix:///path/to/socket[?db=1&user=..&pass=..]`: a master at a socket
    /// - `redis+sentinel://[user[:password]@]host[:port],host[:port]/group[/database]`: the master of a group that
    ///   sentinels watch, which has one vote. User and password are those of the servers. Parameters: `sentinel_user`,
    ///   `sentinel_password`, `sentinel_tls=true`
    /// - `redis+cluster://[user[:password]@]host[:port],host[:port]`: some nodes of a cluster. The others
    ///   are learned, and three hash slots vote. Parameters: `voters=5`, `tags=a,b,c`, `allow_shared_servers=true`
    ///
    /// `rediss` instead of `redis` asks for TLS (feature `tls-rustls`). Each URL may have the parameter
    /// `protocol=resp2`. Servers then do not report when a lock that somebody waits for is free, so waiters ask from
    /// time to time.
    ///
    /// The commas between the servers of one URL, and those between tags, do not end the URL. Write any other comma as
    /// `%2C`, such as one in a password, and other special characters likewise: `%40` for `@`, `%23` for `#`, `%2F` for
    /// `/`.
    ///
    /// `DEPLOYMENTS.md` in the repository shows a line for each topology, and says what a lock promises there, what a
    /// failover costs, and which rights the client needs.
    ///
    /// [`build`](Self::build) reports a URL that cannot be used, with its position.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `redis://a,redis://b,redis://c`, `redis+sentinel://s1,s2,s3/orders` or `redis+cluster://a,b,c?voters=3`
    /// let urls = std::env::var("REDLOCK_NODES")?;
    /// let redlock = Redlock::builder().nodes(&urls).build().await?;
    ///
    /// let urls = ["redis://a", "redis://user:secret@b:6379/1", "unix:///run/redis.sock"];
    /// let redlock = Redlock::builder().nodes(urls).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes<Kind>(mut self, urls: impl NodeUrls<Kind>) -> Self {
        self.given.extend(urls.urls().into_iter().map(Given::Url));
        self
    }

    /// Sets the credentials of all servers that are given by URL. No such URL may then have a user or a password.
    ///
    /// Sentinels are no such servers: their user and password are parameters of the URL.
    ///
    /// ```no_run
    /// # use redlock_tokio::{Credentials, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().nodes("redis://a,redis://b,redis://c");
    /// let password = std::fs::read_to_string("/run/secrets/redis")?;
    /// let credentials = Credentials::new("locker", password.trim_end()); // without the line break
    /// let redlock = builder.credentials(credentials).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials(self, credentials: Credentials) -> Self {
        self.credentials_from(move |_| ready(Ok::<_, CallbackError>(credentials.clone())))
    }

    /// Sets the function that is asked for the credentials of each new connection, for passwords that rotate and for
    /// tokens that expire (AWS IAM, Microsoft Entra ID). It replaces [`credentials`](Self::credentials). The function
    /// gets the address of the server: `host:port`, or the path of a socket.
    ///
    /// The function and the connection together have the [`connect_timeout`](Self::connect_timeout), 1 s by default.
    /// The future is dropped when the time is over. So let the function return a token that the program renews in the
    /// background, or raise the timeout. No lock waits for the function: locks use the other nodes meanwhile.
    ///
    /// If the function fails or panics, the node has [`NodeError::Credentials`](crate::NodeError::Credentials), with
    /// the text of the error and of its sources. Logs show that text, so the text must not have secrets. The function
    /// is called again with the next attempt to connect, at least once a second.
    ///
    /// A connection keeps the credentials with which it was opened. A server that closes a connection because its
    /// token has expired costs the votes that are on their way: the node is connected to again at once, with a new
    /// token. Let the tokens of the nodes expire at different times, so that a majority is always connected.
    ///
    /// ```no_run
    /// # use redlock_tokio::{Credentials, Redlock};
    /// # async fn token_for(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ask = async |address: String| {
    ///     token_for(&address).await.map(|token| Credentials::new("locker", token))
    /// };
    /// let builder = Redlock::builder().nodes("rediss://a,rediss://b,rediss://c");
    /// let redlock = builder.credentials_from(ask).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials_from<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<CallbackError>,
    {
        self.node_options.credentials = Some(Callback::new(ask));
        self
    }

    /// Sets how all connections to nodes that are given by URL check the server, and which certificate they show. Each of
    /// these URLs must then ask for TLS (`rediss://`, `rediss+sentinel://`, `rediss+cluster://`, or
    /// `sentinel_tls=true`). Needs the feature `tls-rustls`.
    ///
    /// The servers of a group or of a cluster, and the other sentinels, are found by the addresses that are announced:
    /// IP addresses by default. A certificate must be for these, or for the [name](TlsOptions::server_name) of the
    /// options.
    ///
    /// ```no_run
    /// # use redlock_tokio::{Redlock, TlsOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = TlsOptions::new().ca_certificates(std::fs::read("ca.pem")?);
    /// let builder = Redlock::builder().nodes("rediss://a,rediss://b,rediss://c");
    /// let redlock = builder.tls(tls).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.node_options.tls = Some(options);
        self
    }

    /// Translates the addresses that sentinels and nodes of clusters announce, for a client behind a NAT or outside a
    /// container network. `None` leaves an address as it is. The addresses in URLs are not translated.
    ///
    /// The function gets `host:port`, and `[host]:port` for IPv6, in lower case. It may be called at any time, so it
    /// must not block. Each server needs an address of its own: if one address leads to different servers, the client
    /// cannot keep them apart.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// let builder = Redlock::builder()
    ///     .nodes("redis+sentinel://localhost:26379/orders")
    ///     .map_addresses(|announced| Some(announced.replace("172.18.0.2", "localhost")));
    /// ```
    pub fn map_addresses(
        mut self,
        map: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.node_options.map = Some(Arc::new(map));
        self
    }

    /// Sets the function that opens the stream of each new connection to a server or a sentinel: a tunnel, a proxy, or
    /// TLS of your own. The function gets the address: `host:port`, or the path of a socket. URLs must not ask for TLS.
    ///
    /// The stream must lead to *one* server, each time to the same. A balancer that spreads the commands of a
    /// connection over several servers would let a release overtake the request that sets its key. A TCP stream should
    /// have `TCP_NODELAY`. The stream is closed when the connection is given up, even if the server has stopped
    /// answering.
    ///
    /// The function has the [`connect_timeout`](Self::connect_timeout), 1 s by default, and is dropped when the time is
    /// over. If it fails or panics, the node is [`NodeError::Unreachable`](crate::NodeError::Unreachable) with the text
    /// of the error and of its sources. Logs show that text, so the text must not have secrets. If the server knows no
    /// RESP3, a second stream is opened for RESP2.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// use tokio::io::DuplexStream;
    ///
    /// async fn tunnel_to(address: String) -> std::io::Result<DuplexStream> {
    ///     // .. any stream of bytes
    /// #   let _ = address;
    /// #   Ok(tokio::io::duplex(64).0)
    /// }
    ///
    /// let builder = Redlock::builder().nodes("redis://a,redis://b,redis://c").stream(tunnel_to);
    /// ```
    pub fn stream<F, Fut, S, E>(mut self, open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<CallbackError>,
    {
        self.node_options.stream = Some(Callback::new(move |address| {
            let stream = open(address);
            async move { stream.await.map(|stream| Box::new(stream) as BoxedStream) }
        }));
        self
    }

    /// Adds a master by a [`deadpool_redis`] pool of your own. `address` is its name in errors and logs.
    ///
    /// The client keeps one connection of the pool for itself, and takes another one when that one breaks. So the pool
    /// needs one more than the application uses at once. Servers report free locks
    /// over it only if the pool's manager was created with the [settings](PoolMessages::config) of these messages, and
    /// the connections speak RESP3. Otherwise waiters poll (see
    /// [`LockOptions::retry_delay`](crate::LockOptions::retry_delay)).
    ///
    /// ```
    /// use redlock_tokio::{
    ///     PoolMessages, Redlock,
    ///     deadpool_redis::{Manager, Pool},
    /// };
    ///
    /// let mut builder = Redlock::builder();
    /// for host in ["a", "b", "c"] {
    ///     let messages = PoolMessages::new();
    ///     let url = format!("redis://{host}/?protocol=resp3");
    ///     let manager = Manager::new_with_config(url, messages.config())?;
    ///     let pool = Pool::builder(manager).max_size(8).build()?;
    ///     builder = builder.pool(host, pool, Some(messages));
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool(
        self,
        address: impl Into<String>,
        pool: Pool,
        messages: Option<PoolMessages>,
    ) -> Self {
        self.custom_nodes([RedisNode::of_pool(address.into(), pool, messages)])
    }

    /// Adds nodes in memory, [`MemoryNode`]s, or nodes of any type that implements `Node`.
    ///
    /// ```
    /// # use redlock_tokio::{Clock, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = [(); 3].map(|()| MemoryNode::new());
    /// let builder = Redlock::builder().custom_nodes(nodes.clone());
    /// let redlock = builder.clock(Clock::tokio()).build().await?;
    /// nodes[0].set_down(true);
    /// assert!(redlock.lock("order:42").await.is_ok()); // two of three agree
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom_nodes<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Node,
    {
        let nodes = nodes.into_iter();
        self.given
            .extend(nodes.map(|node| Given::Node(Arc::new(node))));
        self
    }

    /// Adds five [`MemoryNode`]s, and sets [`Clock::tokio`], by which their keys expire.
    ///
    /// Also sets [`Durability::AssumedForTests`], which applies to all nodes. So do not combine this method with real
    /// servers.
    pub fn embedded(self) -> Self {
        let nodes = (0..5).map(|_| MemoryNode::new());
        self.custom_nodes(nodes)
            .clock(Clock::tokio())
            .durability(Durability::AssumedForTests)
    }

    /// Makes the nodes of what was given, in its order. Refuses two with one address: one server would vote twice.
    pub(super) fn take_nodes(&mut self) -> Result<UrlNodes, BuildError> {
        let mut made = UrlNodes::default();
        let mut positions = BTreeMap::new();
        for (position, given) in (1..).zip(mem::take(&mut self.given)) {
            let one = match given {
                Given::Node(node) => UrlNodes {
                    nodes: vec![node],
                    ..UrlNodes::default()
                },
                Given::Url(url) => UrlNodes::at(&url, &self.node_options)
                    .map_err(|error| BuildError::Url { position, error })?,
            };
            for node in &one.nodes {
                let address: Arc<str> = node.address().into();
                if let Some(first) = positions.insert(Arc::clone(&address), position) {
                    return Err(BuildError::DuplicateNode {
                        address,
                        first,
                        second: position,
                    });
                }
            }
            made.nodes.extend(one.nodes);
            made.tag_len = made.tag_len.max(one.tag_len);
        }
        Ok(made)
    }
}

/// Returns the URLs in a list.
fn urls_in(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    let is_separator = |it: char| it == ',' || it.is_whitespace();
    for part in list.split(is_separator).filter(|part| !part.is_empty()) {
        match urls.last_mut().filter(|url| may_go_on(url)) {
            Some(url) if !part.contains("://") => *url += &format!(",{part}"),
            // A scheme means the same in any case.
            _ => urls.push(match part.split_once("://") {
                Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
                None => part.to_owned(),
            }),
        }
    }
    urls
}

/// Returns true if the text is the URL of a cluster, or that of a Sentinel group without the slash that follows the last
/// sentinel.
fn may_go_on(url: &str) -> bool {
    let sentinels = url.split_once("+sentinel://");
    url.contains("+cluster://") || sentinels.is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_white_space_separate_urls_but_not_the_servers_of_one() {
        let group = "redis+sentinel://:secret@a:1,b:2/orders?protocol=resp2";
        for (list, expected) in [
            ("redis://a,redis://b", &["redis://a", "redis://b"][..]),
            (
                " redis://a, redis://b\n\tunix:///c.sock,,\n",
                &["redis://a", "redis://b", "unix:///c.sock"],
            ),
            (
                &format!("{group},{group},redis://c"),
                &[group, group, "redis://c"],
            ),
            (&group.replace(',', ",\n  "), &[group]),
            (
                "redis+sentinel://a,b,redis://c",
                &["redis+sentinel://a,b", "redis://c"],
            ),
            (
                "Redis+CLUSTER://a,b:1?tags=x,y,z,redis://c",
                &["redis+cluster://a,b:1?tags=x,y,z", "redis://c"],
            ),
            ("redis://a,nonsense,", &["redis://a", "nonsense"]),
            ("", &[]),
            (" ,\n", &[]),
        ] {
            assert_eq!(urls_in(list), expected, "{list}");
        }
    }
}
