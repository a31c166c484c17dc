//! The test bed itself: each fault of a `Proxy` is seen to act, and servers come back.

mod support;

use std::{
    io::{ErrorKind, Read, Write},
    time::Duration,
};

use redlock_tokio::{
    Redlock, ReleaseOutcome,
    test_util::{Link, Proxy, RedisServers},
};
use support::{Cli, MS, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

/// A proxy, and the server behind it.
struct Line {
    proxy: Proxy,
    server: TcpListener,
}

impl Line {
    async fn new() -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::spawn(server.local_addr().unwrap()).unwrap();
        Self { proxy, server }
    }

    /// Opens a connection, and returns both of its ends.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.address()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = soon(self.server.accept()).await.unwrap();
        (client, server)
    }
}

/// What should take no time at all.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(5), what)
        .await
        .expect("within 5 s")
}

async fn say(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn hear(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    soon(stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8(heard).unwrap(), text);
}

/// The end of the stream, after which there is no more.
async fn hear_the_end(stream: &mut TcpStream) {
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap(), 0);
}

async fn hear_nothing(stream: &mut TcpStream) {
    let heard = timeout(MS(30), stream.read(&mut [0])).await;
    assert!(heard.is_err(), "{heard:?}");
}

async fn hear_of_a_reset(stream: &mut TcpStream) {
    let error = soon(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Says something, and waits until it has come as far as the proxy.
async fn say_into(link: &Link, stream: &mut TcpStream, text: &str) {
    let before = link.waiting();
    say(stream, text).await;
    eventually("it has reached the proxy", || {
        link.waiting() == before + text.len() as u64
    })
    .await;
}

#[tokio::test]
async fn relays_both_ways_and_counts() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    say(&mut client, "ping").await;
    hear(&mut server, "ping").await;
    say(&mut server, "a pong").await;
    hear(&mut client, "a pong").await;
    let (requests, replies) = (line.proxy.requests(), line.proxy.replies());
    eventually("all is counted", || {
        (requests.passed(), replies.passed()) == (4, 6)
    })
    .await;
    assert_eq!((requests.waiting(), requests.lost()), (0, 0));
    assert_eq!(line.proxy.accepted(), 1);
    assert!(format!("{:?}", line.proxy).contains("passed: 6"));
}

#[tokio::test]
async fn large_amounts_arrive_whole() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|it| (it / 7) as u8).collect();
    let (_, received) = tokio::join!(
        async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        },
        async {
            let mut received = Vec::new();
            soon(server.read_to_end(&mut received)).await.unwrap();
            received
        }
    );
    assert!(received == sent);
}

#[tokio::test]
async fn a_half_closed_connection_goes_on_in_the_other_direction() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    say(&mut client, "that is all").await;
    client.shutdown().await.unwrap();
    hear(&mut server, "that is all").await;
    hear_the_end(&mut server).await;
    say(&mut server, "so be it").await;
    hear(&mut client, "so be it").await;
    drop(server);
    hear_the_end(&mut client).await;
}

#[tokio::test]
async fn a_delay_is_the_same_for_all_and_nothing_waits_for_anything_else() {
    const ROUND_TRIPS: u32 = 20;
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.requests().delay(MS(60));
    line.proxy.replies().delay(MS(40));
    tokio::spawn(async move {
        let mut byte = [0];
        while server.read_exact(&mut byte).await.is_ok() {
            server.write_all(&byte).await.unwrap();
        }
    });
    let (mut from_server, mut to_server) = client.split();
    let started = Instant::now();
    let pipelined = async {
        for _ in 0..ROUND_TRIPS {
            to_server.write_all(b".").await.unwrap();
            // Not to synchronise: the requests shall not travel as one.
            tokio::time::sleep(MS(2)).await;
        }
    };
    let answers = async {
        let mut times = Vec::new();
        for _ in 0..ROUND_TRIPS {
            soon(from_server.read_exact(&mut [0])).await.unwrap();
            times.push(started.elapsed());
        }
        times
    };
    let ((), times) = tokio::join!(pipelined, answers);
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!(first >= MS(100), "one delay each way: {first:?}");
    assert!(last < MS(100) * ROUND_TRIPS / 2, "not in turn: {last:?}");
}

#[tokio::test]
async fn a_delay_holds_for_one_direction_and_ends() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.replies().delay(Duration::from_secs(3600));
    say(&mut client, "at once").await;
    hear(&mut server, "at once").await;
    say_into(line.proxy.replies(), &mut server, "much later").await;
    hear_nothing(&mut client).await;
    line.proxy.replies().delay(Duration::ZERO);
    hear(&mut client, "much later").await;
}

#[tokio::test]
async fn a_delay_that_is_changed_changes_for_what_is_under_way_in_its_order() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    requests.delay(Duration::MAX);
    say_into(requests, &mut client, "first, ").await;
    requests.delay(MS(50));
    let started = Instant::now();
    say(&mut client, "second").await;
    hear(&mut server, "first, second").await;
    assert!(started.elapsed() >= MS(50));
}

#[tokio::test]
async fn what_is_held_is_kept_and_delivered_in_order() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let replies = line.proxy.replies();
    replies.hold();
    for word in ["one ", "two ", "three"] {
        say_into(replies, &mut server, word).await;
    }
    drop(server);
    hear_nothing(&mut client).await;
    say(&mut client, "the other direction is open").await;
    replies.pass();
    hear(&mut client, "one two three").await;
    hear_the_end(&mut client).await;
    assert_eq!((replies.waiting(), replies.lost()), (0, 0));
}

#[tokio::test]
async fn what_is_delayed_can_be_held_and_what_is_held_can_be_lost() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    requests.delay(Duration::from_secs(3600));
    say_into(requests, &mut client, "delayed").await;
    requests.hold();
    requests.delay(Duration::ZERO);
    hear_nothing(&mut server).await;
    requests.lose();
    eventually("it is lost", || requests.lost() == 7).await;
    assert_eq!((requests.waiting(), requests.passed()), (0, 0));
}

#[tokio::test]
async fn what_is_stranded_arrives_after_what_was_said_on_the_next_connection() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    requests.strand();
    say_into(requests, &mut client, "stranded").await;
    drop(client);
    hear_nothing(&mut server).await;
    let (mut second, mut its_server) = line.connect().await;
    say(&mut second, "overtaken").await;
    hear(&mut its_server, "overtaken").await;
    requests.pass();
    hear(&mut server, "stranded").await;
    hear_the_end(&mut server).await;
}

#[tokio::test]
async fn what_is_lost_is_lost_and_so_is_what_follows_on_that_connection() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    say(&mut client, "arrives").await;
    hear(&mut server, "arrives").await;
    requests.lose();
    say(&mut client, "lost").await;
    eventually("it is lost", || requests.lost() == 4).await;
    requests.pass();
    say(&mut client, ", and this").await;
    eventually("this, too", || requests.lost() == 14).await;
    client.shutdown().await.unwrap();
    hear_nothing(&mut server).await;
    say(&mut server, "the other direction is open").await;
    hear(&mut client, "the other direction is open").await;
    let (mut second, mut its_server) = line.connect().await;
    say(&mut second, "and so is a new connection").await;
    hear(&mut its_server, "and so is a new connection").await;
}

#[tokio::test]
async fn a_black_hole_accepts_and_relays_nothing() {
    let line = Line::new().await;
    line.proxy.requests().lose();
    line.proxy.replies().lose();
    let (mut client, mut server) = line.connect().await;
    say(&mut client, "anybody there?").await;
    say(&mut server, "hello?").await;
    eventually("both are lost", || {
        (line.proxy.requests().lost(), line.proxy.replies().lost()) == (14, 6)
    })
    .await;
    // Not even the end of it gets through.
    drop(server);
    hear_nothing(&mut client).await;
}

#[tokio::test]
async fn a_reset_reaches_both_sides_and_spares_new_connections() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.replies().hold();
    say_into(line.proxy.replies(), &mut server, "under way").await;
    line.proxy.reset();
    assert_eq!(line.proxy.replies().waiting(), 0);
    hear_of_a_reset(&mut client).await;
    hear_of_a_reset(&mut server).await;
    line.proxy.replies().pass();
    let (mut client, mut server) = line.connect().await;
    say(&mut server, "afresh").await;
    hear(&mut client, "afresh").await;
    assert_eq!(line.proxy.accepted(), 2);
}

#[tokio::test]
async fn a_side_that_resets_resets_the_other_unless_that_is_held() {
    let line = Line::new().await;
    let (client, mut server) = line.connect().await;
    client.set_zero_linger().unwrap();
    drop(client);
    hear_of_a_reset(&mut server).await;

    let (mut client, server) = line.connect().await;
    line.proxy.replies().hold();
    server.set_zero_linger().unwrap();
    drop(server);
    hear_nothing(&mut client).await;
    line.proxy.replies().pass();
    hear_of_a_reset(&mut client).await;
}

#[tokio::test]
async fn refuses_new_connections_and_keeps_the_others() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    for _ in 0..3 {
        line.proxy.refuse();
        let refused = soon(TcpStream::connect(line.proxy.address())).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        say(&mut client, "still here").await;
        hear(&mut server, "still here").await;
        line.proxy.accept();
        line.connect().await;
    }
}

#[tokio::test]
async fn ignores_new_connections_and_keeps_the_others() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    for _ in 0..3 {
        line.proxy.ignore();
        for _ in 0..3 {
            let connecting = TcpStream::connect(line.proxy.address());
            let ignored = timeout(MS(30), connecting).await;
            assert!(ignored.is_err(), "{ignored:?}");
        }
        say(&mut client, "still here").await;
        hear(&mut server, "still here").await;
        line.proxy.accept();
        line.connect().await;
    }
    assert_eq!(line.proxy.accepted(), 4, "nobody else came in");
}

#[tokio::test]
async fn who_connects_while_ignored_is_accepted_in_the_end() {
    let line = Line::new().await;
    line.proxy.ignore();
    let connecting = tokio::spawn(TcpStream::connect(line.proxy.address()));
    let waiting = timeout(MS(30), line.server.accept()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    line.proxy.heal();
    soon(connecting).await.unwrap().expect("at its next try");
    soon(line.server.accept()).await.unwrap();
}

#[tokio::test]
async fn healing_ends_all_faults() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.requests().hold();
    line.proxy.replies().delay(Duration::from_secs(3600));
    line.proxy.refuse();
    say_into(line.proxy.requests(), &mut client, "held").await;
    say_into(line.proxy.replies(), &mut server, "delayed").await;
    line.proxy.heal();
    hear(&mut server, "held").await;
    hear(&mut client, "delayed").await;
    line.connect().await;
}

#[tokio::test]
async fn without_a_server_clients_are_reset() {
    let Line { proxy, server } = Line::new().await;
    drop(server);
    match soon(TcpStream::connect(proxy.address())).await {
        Ok(mut client) => hear_of_a_reset(&mut client).await,
        // It was reset before it had noticed that it was connected.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn dropping_it_resets_its_connections_and_frees_the_port() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let address = line.proxy.address();
    drop(line.proxy);
    hear_of_a_reset(&mut client).await;
    hear_of_a_reset(&mut server).await;
    assert!(TcpStream::connect(address).await.is_err());
    // Not `SO_REUSEADDR`, which would also do beside another socket.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
}

/// The test blocks its only thread, and its clock stands still.
#[tokio::test(start_paused = true)]
async fn relays_whatever_becomes_of_the_runtime_of_the_test() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::spawn(server.local_addr().unwrap()).unwrap();
    proxy.requests().delay(MS(10));
    let mut client = std::net::TcpStream::connect(proxy.address()).unwrap();
    client.write_all(b"ping").unwrap();
    let mut heard = [0; 4];
    server.accept().unwrap().0.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"ping");
}

#[tokio::test]
async fn a_server_comes_back_on_its_port_without_its_keys() {
    let servers = RedisServers::spawn(1).unwrap();
    let server = servers.get(0);
    let (port, mut pid) = (server.port(), server.pid());
    for round in 0..4 {
        Cli::of(server).set("k", "v");
        match round {
            0 => server.kill(),
            // Frozen with a connection that stays open.
            1 => server.freeze(),
            // It still runs.
            2 => {}
            _ => server.kill(),
        }
        if round == 3 {
            servers.restart().unwrap();
        } else {
            server.restart().unwrap();
        }
        std::net::TcpStream::connect(server.address()).expect("up");
        assert_eq!(Cli::of(server).get("k"), None, "and forgetful");
        assert_eq!(server.port(), port);
        assert_ne!(std::mem::replace(&mut pid, server.pid()), server.pid());
    }
    server.freeze();
    server.thaw();
    assert_eq!(Cli::of(server).run(&["PING"]), "PONG");
}

#[tokio::test]
async fn a_server_with_an_append_only_file_keeps_its_keys() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = RedisServers::spawn_with(2, &arguments).unwrap();
    servers.iter().for_each(|it| Cli::of(it).set("k", "v"));
    servers.restart().unwrap();
    for server in servers.iter() {
        assert_eq!(Cli::of(server).get("k").as_deref(), Some("v"));
    }
}

#[tokio::test]
async fn locks_come_and_go_over_proxies_and_restarts() {
    let servers = RedisServers::spawn(3).unwrap();
    let proxies: Vec<_> = servers
        .iter()
        .map(|it| Proxy::spawn(it.address()).unwrap())
        .collect();
    let builder = Redlock::builder().nodes(proxies.iter().map(Proxy::url));
    let builder = builder
        .trust_fresh_nodes()
        .node_timeout(Duration::from_secs(2));
    let redlock = builder.build().await.unwrap();
    redlock.lock("k").await.unwrap().release().await;
    assert!(proxies.iter().all(|it| it.requests().passed() > 0));
    let before: Vec<_> = proxies.iter().map(Proxy::accepted).collect();
    servers.restart().unwrap();
    eventually("all are connected again", || {
        let mut now = proxies.iter().map(Proxy::accepted).zip(&before);
        now.all(|(now, before)| now > *before)
    })
    .await;
    let guard = redlock.lock("k").await.unwrap();
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::Released);
}
