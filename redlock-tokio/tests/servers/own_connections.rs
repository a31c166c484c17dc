//! Nodes whose connections a function of the user opens. Over real servers.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use redlock_tokio::{
    BuildError, Durability, FactorySettings, LockOptions, NodeError, NodeState, RedisNode, Redlock,
    RedlockBuilder,
    deadpool_redis::redis::{
        Client, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
        aio::MultiplexedConnection,
    },
    test_util::{RedisServer, RedisServers},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};

use crate::support::{Cli, MS, eventually, log::Log};

/// What a test sees of the connections of one node.
#[derive(Clone, Default)]
struct Seen {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    /// How many messages about keys the server sent.
    invalidations: Arc<AtomicUsize>,
}

/// A stream that counts the server's messages about keys.
struct Counting {
    stream: TcpStream,
    seen: Seen,
}

impl Counting {
    async fn connect(server: &str, seen: &Seen) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        seen.opened.fetch_add(1, SeqCst);
        let seen = seen.clone();
        Ok(Self { stream, seen })
    }
}

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        // A server writes such a message at once, and so it is not cut in two.
        let new = buffer.filled()[before..].windows(10);
        let count = new.filter(|bytes| bytes == b"invalidate").count();
        self.seen.invalidations.fetch_add(count, SeqCst);
        polled
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.seen.closed.fetch_add(1, SeqCst);
    }
}

/// A node over streams that are counted.
fn tunnelled(server: &RedisServer, seen: &Seen) -> RedisNode {
    let (address, seen) = (server.address().to_string(), seen.clone());
    RedisNode::from_factory(address.clone(), move |settings| {
        let (address, seen) = (address.clone(), seen.clone());
        async move {
            let stream = Counting::connect(&address, &seen).await?;
            settings
                .connect_over(stream, RedisConnectionInfo::default())
                .await
        }
    })
}

/// A node whose factory gets the URL of the server and the settings.
fn made_by<F, Fut>(server: &RedisServer, factory: F) -> RedisNode
where
    F: Fn(String, FactorySettings) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
{
    let url = server.url();
    RedisNode::from_factory(server.address().to_string(), move |settings| {
        factory(url.clone(), settings)
    })
}

fn plain(server: &RedisServer) -> RedisNode {
    made_by(server, async |url, settings| settings.connect(url).await)
}

fn over(nodes: impl IntoIterator<Item = RedisNode>) -> RedlockBuilder {
    let builder = Redlock::builder()
        .custom_nodes(nodes)
        .durability(Durability::AssumedForTests);
    builder.node_timeout(MS(2000))
}

fn clis(servers: &RedisServers) -> Vec<Cli> {
    servers.iter().map(Cli::of).collect()
}

/// A waiter with these options polls only after minutes, which is longer than a test takes.
fn seldom() -> LockOptions {
    LockOptions::new().retry_delay(MS(600_000), MS(1_200_000))
}

#[tokio::test]
async fn messages_over_own_streams_wake_the_waiter() {
    let servers = RedisServers::spawn(3).unwrap();
    let seen: [Seen; 3] = Default::default();
    let nodes = servers
        .iter()
        .zip(&seen)
        .map(|(it, seen)| tunnelled(it, seen));
    let redlock = over(nodes).build().await.unwrap();
    let nodes = clis(&servers);
    nodes.iter().for_each(|node| node.set("k", "foreign"));
    let waiting = redlock.lock("k").wait(MS(60_000)).options(seldom());
    let waiting = tokio::spawn(waiting.into_future());
    eventually("the key is probed", || {
        nodes.iter().all(|node| node.calls("pttl") == 1)
    })
    .await;
    let count = |seen: &Seen| seen.invalidations.load(SeqCst);
    assert_eq!(seen.each_ref().map(count), [0, 0, 0]);

    for node in &nodes {
        assert_eq!(node.run(&["DEL", "k"]), "1");
    }
    let woken = timeout(Duration::from_secs(10), waiting).await;
    let guard = woken.expect("it is woken").unwrap().unwrap();
    assert!(seen.iter().map(count).sum::<usize>() >= 2, "a majority");
    guard.release().await;
    assert_eq!(seen.each_ref().map(|it| it.opened.load(SeqCst)), [1, 1, 1]);
}

/// Without the settings there is no way for the messages. So the waiter asks, and does not rely on them.
#[tokio::test]
async fn a_connection_without_the_settings_is_noticed_and_waiters_poll() {
    let (log, _guard) = Log::start();
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = servers.iter().map(|it| {
        made_by(it, async |url, settings| {
            // One that speaks RESP3, with no receiver.
            assert_eq!(settings.protocol(), ProtocolVersion::RESP3);
            let client = Client::open(format!("{url}?protocol=resp3"))?;
            client.get_multiplexed_async_connection().await
        })
    });
    let redlock = over(nodes).build().await.unwrap();
    let text = log.text();
    for server in servers.iter() {
        let address = server.address().to_string();
        let lines = text
            .lines()
            .filter(|it| it.contains("messages do not arrive"));
        let lines: Vec<_> = lines.filter(|it| it.contains(&address)).collect();
        assert!(lines.len() == 1 && lines[0].contains("WARN"), "{text}");
    }
    let nodes = clis(&servers);
    nodes.iter().for_each(|node| node.set("k", "foreign"));
    let options = LockOptions::new().retry_delay(MS(20), MS(50));
    let waiting = redlock.lock("k").wait(MS(60_000)).options(options);
    let waiting = tokio::spawn(waiting.into_future());
    eventually("the key is probed again and again", || {
        nodes.iter().all(|node| node.calls("pttl") > 3)
    })
    .await;
    for node in &nodes {
        assert_eq!(node.run(&["DEL", "k"]), "1");
    }
    let woken = timeout(Duration::from_secs(10), waiting).await;
    drop(woken.expect("it finds the free key").unwrap().unwrap());
}

#[tokio::test]
async fn connections_with_the_settings_warn_of_nothing() {
    let (log, _guard) = Log::start();
    let servers = RedisServers::spawn(3).unwrap();
    let with_config = |server| {
        made_by(server, async |url, settings| {
            let protocol = match settings.protocol() {
                ProtocolVersion::RESP3 => "resp3",
                _ => "resp2",
            };
            let client = Client::open(format!("{url}?protocol={protocol}"))?;
            let config = settings.config();
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        })
    };
    let nodes = [
        plain(servers.get(0)),
        tunnelled(servers.get(1), &Seen::default()),
        with_config(servers.get(2)),
    ];
    let redlock = over(nodes).build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    guard.release().await;
    assert_eq!(log.text(), "");
}

/// A server before Redis 6.
#[tokio::test]
async fn a_server_without_resp3_is_asked_for_resp2() {
    let servers = RedisServers::spawn_with(1, &["--rename-command", "HELLO", ""]).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let node = made_by(servers.get(0), move |url, settings| {
        let expected = match count.fetch_add(1, SeqCst) {
            0 => ProtocolVersion::RESP3,
            _ => ProtocolVersion::RESP2,
        };
        assert_eq!(settings.protocol(), expected);
        async move { settings.connect(url).await }
    });
    let (log, _guard) = Log::start();
    let redlock = over([node]).build().await.unwrap();
    drop(redlock.lock("k").await.expect("a lock"));
    assert_eq!(calls.load(SeqCst), 2);
    assert!(!log.text().contains("messages"), "{}", log.text());
}

#[tokio::test]
async fn a_factory_that_fails_or_hangs_costs_one_node_and_recovers() {
    let servers = RedisServers::spawn(3).unwrap();
    let is_well = Arc::new(AtomicBool::new(false));
    let (well, calls) = (Arc::clone(&is_well), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let sick = made_by(servers.get(0), move |url, settings| {
        let call = count.fetch_add(1, SeqCst);
        let is_well = well.load(SeqCst);
        async move {
            match call % 3 {
                _ if is_well => settings.connect(url).await,
                0 => Err(io::Error::other("the tunnel is closed").into()),
                1 => panic!("a factory that panics"),
                _ => pending().await,
            }
        }
    });
    let others = [1, 2].map(|it| plain(servers.get(it)));
    let nodes = others.into_iter().chain([sick]);
    let redlock = over(nodes).connect_timeout(MS(500)).build().await.unwrap();
    for words in [
        "the tunnel is closed",
        "panicked",
        "no connection within 500ms",
    ] {
        let start = Instant::now();
        drop(redlock.lock("k").await.expect("two of three"));
        assert!(
            start.elapsed() < Duration::from_secs(4),
            "no one waits for it"
        );
        eventually(words, || {
            let NodeState::Reconnecting(NodeError::Unreachable(text)) = &redlock.nodes()[2].state
            else {
                return false;
            };
            text.contains(words)
        })
        .await;
    }
    is_well.store(true, SeqCst);
    eventually("the node votes", || {
        redlock.nodes()[2].state == NodeState::Voting
    })
    .await;
}

#[tokio::test]
async fn a_refusal_of_the_server_is_a_refusal_through_a_factory_too() {
    let servers = RedisServers::spawn_with(1, &["--requirepass", "secret"]).unwrap();
    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Wrapped(#[source] RedisError);

    let url = servers
        .get(0)
        .url()
        .replace("redis://", "redis://:hunter2@");
    let node = RedisNode::from_factory("a", move |settings| {
        let url = url.clone();
        async move { settings.connect(url).await.map_err(Wrapped) }
    });
    let error = over([node]).build().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, BuildError::Refused { .. }), "{error:?}");
    assert!(text.contains("invalid username-password"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

/// A frozen server costs the session, so that the factory is asked again.
async fn freeze_until_the_session_ends(redlock: &Redlock, server: &RedisServer) {
    server.freeze();
    eventually("the session ends", || {
        matches!(redlock.nodes()[0].state, NodeState::Reconnecting(_))
    })
    .await;
    server.thaw();
}

fn impatient(nodes: impl IntoIterator<Item = RedisNode>) -> RedlockBuilder {
    over(nodes).node_timeout(MS(200)).connect_timeout(MS(500))
}

#[tokio::test]
async fn a_silent_server_is_given_up_by_closing_the_stream() {
    let servers = RedisServers::spawn(1).unwrap();
    let seen = Seen::default();
    let node = tunnelled(servers.get(0), &seen);
    let redlock = impatient([node]).build().await.unwrap();
    assert_eq!((seen.opened.load(SeqCst), seen.closed.load(SeqCst)), (1, 0));
    servers.get(0).freeze();
    // The server has requests that it has not answered.
    redlock.lock("k").wait(MS(300)).await.unwrap_err();
    eventually("the stream is closed", || seen.closed.load(SeqCst) >= 1).await;
    servers.get(0).thaw();
    eventually("the node votes", || {
        redlock.nodes()[0].state == NodeState::Voting
    })
    .await;
    drop(redlock.lock("k").await.expect("a lock over a new stream"));
}

#[tokio::test]
async fn a_connection_that_is_returned_again_is_refused() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0);
    let shared = tokio::sync::OnceCell::<MultiplexedConnection>::new();
    let shared = Arc::new(shared);
    let shares = made_by(server, move |url, settings| {
        let shared = Arc::clone(&shared);
        async move {
            let connection = shared.get_or_try_init(|| settings.connect(url)).await?;
            Ok(connection.clone())
        }
    });
    let redlock = impatient([shares]).build().await.unwrap();
    drop(redlock.lock("k").await.expect("the first time it is new"));
    freeze_until_the_session_ends(&redlock, server).await;
    eventually("the connection is refused", || {
        let NodeState::Refused(NodeError::Misconfigured(text)) = &redlock.nodes()[0].state else {
            return false;
        };
        text.contains("returned before")
    })
    .await;

    // The same course of things, with a new connection each time.
    let redlock = impatient([plain(server)]).build().await.unwrap();
    freeze_until_the_session_ends(&redlock, server).await;
    eventually("the node votes", || {
        redlock.nodes()[0].state == NodeState::Voting
    })
    .await;
}

/// The numbers of a server's connections begin anew when the server does.
#[tokio::test]
async fn a_restarted_server_is_no_shared_connection() {
    let servers = RedisServers::spawn(1).unwrap();
    let redlock = impatient([plain(servers.get(0))]).build().await.unwrap();
    for _ in 0..3 {
        servers.get(0).restart().unwrap();
        eventually("the node is connected to the new server", || {
            let pid = servers.get(0).pid();
            let node = &redlock.nodes()[0];
            node.state == NodeState::Voting && Cli::of(servers.get(0)).connections() > 1 && pid > 0
        })
        .await;
        drop(redlock.lock("k").await.expect("a lock"));
    }
}
