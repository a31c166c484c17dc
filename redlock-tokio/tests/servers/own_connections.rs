//! Nodes over streams that a function of the user opens, and over pools of the user. Over real servers.

use std::{
    collections::BTreeMap,
    future::pending,
    io, slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use redlock_kit::{RedisServer, RedisServers};
use redlock_tokio::{
    BuildError, Credentials, Durability, PoolMessages, Redlock, RedlockBuilder,
    deadpool_redis::{Manager, Pool},
};
use tokio::{
    io::{DuplexStream, copy, duplex, split},
    net::TcpStream,
};

use crate::{
    fleet::{clis, each},
    support::{
        Cli, MS, asleep_at, assert_says, built, eventually,
        log::Log,
        states::{is_reconnecting, state, votes, voting},
        waiting_at, woken,
    },
};

/// How many streams to one node were opened, and closed.
#[derive(Clone, Default)]
struct Seen {
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

/// Connects to a server. The stream is no socket.
async fn connect(server: &str, seen: &Seen) -> io::Result<DuplexStream> {
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let (stream, other_end) = duplex(64 * 1024);
    let (mut from_client, mut to_client) = split(other_end);
    seen.opened.fetch_add(1, SeqCst);
    let closed = Arc::clone(&seen.closed);
    tokio::spawn(async move {
        tokio::select! {
            _ = copy(&mut from_client, &mut to_server) => {}
            _ = copy(&mut from_server, &mut to_client) => {}
        }
        closed.fetch_add(1, SeqCst);
    });
    Ok(stream)
}

/// Opens streams that are counted, each by the address of its server.
fn tunnel(
    servers: &RedisServers,
    seen: &[Seen],
) -> impl Fn(String) -> BoxFuture<'static, io::Result<DuplexStream>> + Clone + Send + Sync + 'static
{
    let addresses = servers.iter().map(|it| it.address().to_string());
    let seen: BTreeMap<_, _> = addresses.zip(seen.iter().cloned()).collect();
    move |address| {
        let seen = seen.get(&address).cloned().unwrap_or_default();
        async move { connect(&address, &seen).await }.boxed()
    }
}

/// Adds a pool of the user, which may have messages.
fn pooled(builder: RedlockBuilder, server: &RedisServer, has_messages: bool) -> RedlockBuilder {
    let url = format!("{}?protocol=resp3", server.url());
    let name = server.address().to_string();
    let messages = has_messages.then(PoolMessages::new);
    let manager = match &messages {
        Some(messages) => Manager::new_with_config(url, messages.config()),
        None => Manager::new(url),
    };
    let pool = Pool::builder(manager.unwrap()).build().unwrap();
    builder.pool(name, pool, messages)
}

fn builder() -> RedlockBuilder {
    let builder = Redlock::builder().durability(Durability::AssumedForTests);
    builder.node_timeout(MS(2000))
}

/// Three servers that have a key of a foreign client.
fn three() -> (RedisServers, Vec<Cli>) {
    let servers = RedisServers::spawn(3).unwrap();
    let nodes = clis(&servers);
    each(&nodes, &["SET", "k", "foreign"]);
    (servers, nodes)
}

#[tokio::test]
async fn messages_over_own_streams_wake_the_waiter() {
    let (log, _logging) = Log::start();
    let (servers, nodes) = three();
    let seen: [Seen; 3] = Default::default();
    let builder = builder().nodes(servers.urls());
    let redlock = built(builder.stream(tunnel(&servers, &seen))).await;
    let waiting = asleep_at(&nodes, redlock.lock("k")).await;
    each(&nodes, &["DEL", "k"]);
    drop(woken(waiting).await);
    assert_eq!(seen.each_ref().map(|it| it.opened.load(SeqCst)), [1, 1, 1]);
    assert_eq!(log.text(), "");
}

#[tokio::test]
async fn messages_over_a_pool_wake_the_waiter() {
    let (servers, nodes) = three();
    let add = |builder, server| pooled(builder, server, true);
    let redlock = built(servers.iter().fold(builder(), add)).await;
    let waiting = asleep_at(&nodes, redlock.lock("k")).await;
    each(&nodes, &["DEL", "k"]);
    drop(woken(waiting).await);
}

/// Without messages the waiter asks, and does not rely on them.
#[tokio::test]
async fn connections_without_messages_let_waiters_poll() {
    let (servers, nodes) = three();
    let add = |builder, server| pooled(builder, server, false);
    let builder = servers.iter().take(2).fold(builder(), add);
    let builder = builder.nodes(servers.get(2).url() + "?protocol=resp2");
    let redlock = built(builder.stream(tunnel(&servers, &[]))).await;
    let often = redlock
        .lock("k")
        .wait(MS(60_000))
        .retry_delay(MS(20), MS(50));
    let waiting = waiting_at(&nodes, often).await;
    let looks_again = || nodes.iter().all(|node| node.calls("pttl") >= 4);
    eventually("it looks again", looks_again).await;
    each(&nodes, &["DEL", "k"]);
    drop(woken(waiting).await);
}

/// A server before Redis 6.
#[tokio::test]
async fn a_server_without_resp3_is_asked_for_resp2() {
    let servers = RedisServers::spawn_with(1, &["--rename-command", "HELLO", ""]).unwrap();
    let seen = Seen::default();
    let stream = tunnel(&servers, slice::from_ref(&seen));
    let redlock = built(builder().nodes(servers.urls()).stream(stream)).await;
    drop(redlock.lock("k").await.expect("a lock"));
    assert_eq!(seen.opened.load(SeqCst), 2);
    eventually("the first is closed", || seen.closed.load(SeqCst) == 1).await;
}

/// A function of the user that fails for one address, panics, or does not return, by turns, until it is well.
#[derive(Clone)]
pub(crate) struct Sick {
    address: String,
    is_well: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Sick {
    pub(crate) fn at(server: &RedisServer) -> Self {
        Self {
            address: server.address().to_string(),
            is_well: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Does this in a call for an address.
    pub(crate) async fn suffer(self, address: &str) -> io::Result<()> {
        if address != self.address || self.is_well.load(SeqCst) {
            return Ok(());
        }
        match self.calls.fetch_add(1, SeqCst) % 3 {
            0 => Err(io::Error::other("a function that fails")),
            1 => panic!("a function that panics"),
            _ => pending().await,
        }
    }

    /// Asserts that the third node of a client says why it cannot be connected to, by this text for a call that fails,
    /// and is connected to in the end.
    pub(crate) async fn costs_one_node_and_recovers(self, builder: RedlockBuilder, failed: &str) {
        let redlock = built(builder.connect_timeout(MS(500))).await;
        let patience = Duration::from_secs(4);
        for words in [failed, "panicked", "no connection within 500ms"] {
            let start = Instant::now();
            drop(redlock.lock("k").await.expect("two of three"));
            assert!(start.elapsed() < patience, "no one waits for it");
            let state = || state(&redlock, 2).to_string();
            let says_so = || is_reconnecting(&redlock, 2) && state().contains(words);
            eventually(words, says_so).await;
        }
        self.is_well.store(true, SeqCst);
        voting(&redlock, 2).await;
    }
}

#[tokio::test]
async fn a_stream_that_fails_or_hangs_costs_one_node_and_recovers() {
    let servers = RedisServers::spawn(3).unwrap();
    let sick = Sick::at(servers.get(2));
    let open = {
        let sick = sick.clone();
        move |address: String| {
            let sick = sick.clone();
            async move {
                sick.suffer(&address).await?;
                connect(&address, &Seen::default()).await
            }
        }
    };
    let builder = builder().nodes(servers.urls()).stream(open);
    let failed = "a function that fails";
    sick.costs_one_node_and_recovers(builder, failed).await;
}

/// Credentials come from the URL, or from a function for each connection.
#[tokio::test]
async fn own_streams_authenticate() {
    let servers = RedisServers::spawn_with(1, &["--requirepass", "secret"]).unwrap();
    let url = servers.get(0).url();
    let over = |url: &str| builder().nodes(url).stream(tunnel(&servers, &[]));
    let with = |password: &str| {
        let url = url.replace("redis://", &format!("redis://:{password}@"));
        over(&url)
    };
    let outcome = with("hunter2").build().await;
    let error = assert_refused!(outcome, BuildError::Refused { .. });
    assert_says(&error, "invalid username-password");
    assert!(!error.to_string().contains("hunter2"), "{error}");

    let ask = async |_| Ok::<_, io::Error>(Credentials::new("default", "secret"));
    for builder in [with("secret"), over(&url).credentials_from(ask)] {
        drop(built(builder).await.lock("k").await.expect("a lock"));
    }
}

#[cfg(feature = "tls-rustls")]
#[tokio::test]
async fn a_stream_for_a_url_with_tls_is_refused() {
    let open = async |address: String| connect(&address, &Seen::default()).await;
    let builder = Redlock::builder().nodes("rediss://localhost").stream(open);
    let error = assert_refused!(builder.build().await, BuildError::Url { .. });
    assert_says(&error, "its own TLS");
}

fn impatient() -> RedlockBuilder {
    builder().node_timeout(MS(200)).connect_timeout(MS(500))
}

#[tokio::test]
async fn a_silent_server_is_given_up_by_closing_the_stream() {
    let servers = RedisServers::spawn(1).unwrap();
    let seen = Seen::default();
    let stream = tunnel(&servers, slice::from_ref(&seen));
    let redlock = built(impatient().nodes(servers.urls()).stream(stream)).await;
    assert_eq!((seen.opened.load(SeqCst), seen.closed.load(SeqCst)), (1, 0));
    servers.get(0).freeze();
    // The server has requests that it has not answered.
    redlock.lock("k").wait(MS(300)).await.unwrap_err();
    eventually("the stream is closed", || seen.closed.load(SeqCst) >= 1).await;
    servers.get(0).thaw();
    voting(&redlock, 0).await;
    drop(redlock.lock("k").await.expect("a lock over a new stream"));
}

#[tokio::test]
async fn a_restarted_server_gets_a_new_connection() {
    let servers = RedisServers::spawn(2).unwrap();
    let builder = impatient().nodes(servers.get(0).url());
    let builder = pooled(builder.stream(tunnel(&servers, &[])), servers.get(1), true);
    let redlock = builder.build().await.unwrap();
    for _ in 0..3 {
        for server in servers.iter() {
            server.restart().unwrap();
        }
        eventually("both vote again, over new connections", || {
            let is_connected = |it| Cli::of(servers.get(it)).connections() > 1;
            (0..2).all(|it| votes(&redlock, it) && is_connected(it))
        })
        .await;
        drop(redlock.lock("k").await.expect("a lock"));
    }
}
