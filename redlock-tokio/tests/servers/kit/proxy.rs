//! The faults of a test `Proxy`: each of them is observed at both ends of a connection.

use std::{
    io::{ErrorKind, Read, Write},
    time::Duration,
};

use redlock_kit::{Link, Proxy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{MS, eventually};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn requests_under_way_are_delayed_independently() {
    const DELAY: Duration = Duration::from_secs(1);
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.requests().delay(DELAY);
    let started = Instant::now();
    for word in ["a", "b", "c", "d"] {
        say_into(line.proxy.requests(), &mut client, word).await;
    }
    hear(&mut server, "abcd").await;
    let passed = started.elapsed();
    assert!(passed >= DELAY && passed < 3 * DELAY, "{passed:?}");
}

#[tokio::test]
async fn delayed_bytes_can_be_delayed_otherwise_held_and_lost() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    requests.delay(Duration::MAX);
    say_into(requests, &mut client, "first, ").await;
    hear_nothing(&mut server).await;
    carry(&mut server, "at once", &mut client).await;
    requests.delay(MS(50));
    let started = Instant::now();
    say(&mut client, "second").await;
    hear(&mut server, "first, second").await;
    assert!(started.elapsed() >= MS(50));

    requests.delay(HOUR);
    say_into(requests, &mut client, "delayed").await;
    requests.hold();
    requests.delay(Duration::ZERO);
    hear_nothing(&mut server).await;
    requests.lose();
    eventually("the text is lost", || requests.lost() == 7).await;
    assert_eq!((requests.waiting(), requests.passed()), (0, 13));
}

#[tokio::test]
async fn held_bytes_are_kept_and_delivered_in_order() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let replies = line.proxy.replies();
    replies.hold();
    for word in ["one ", "two ", "three"] {
        say_into(replies, &mut server, word).await;
    }
    server.shutdown().await.unwrap();
    hear_nothing(&mut client).await;
    carry(&mut client, "the other direction is open", &mut server).await;
    replies.pass();
    hear(&mut client, "one two three").await;
    hear_the_end(&mut client).await;
    assert_eq!(
        (replies.waiting(), replies.lost(), replies.passed()),
        (0, 0, 13)
    );
}

#[tokio::test]
async fn a_connection_that_lost_bytes_loses_all_later_ones() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    carry(&mut client, "arrives", &mut server).await;
    requests.lose();
    say(&mut client, "lost").await;
    eventually("the text is lost", || requests.lost() == 4).await;
    requests.pass();
    say(&mut client, ", and this").await;
    eventually("the second text, too", || requests.lost() == 14).await;
    client.shutdown().await.unwrap();
    hear_nothing(&mut server).await;
    carry(&mut server, "the other direction is open", &mut client).await;
    let (mut second, mut its_server) = line.connect().await;
    carry(&mut second, "and so is a new connection", &mut its_server).await;
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
    carry(&mut server, "afresh", &mut client).await;
}

#[tokio::test]
async fn a_reset_by_one_side_reaches_the_other_unless_it_is_held() {
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
async fn refuses_or_ignores_new_connections_and_keeps_the_others() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let connect = || TcpStream::connect(line.proxy.address());
    for _ in 0..3 {
        line.proxy.refuse();
        let refused = soon(connect()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        line.proxy.ignore();
        for _ in 0..3 {
            let ignored = timeout(MS(30), connect()).await;
            assert!(ignored.is_err(), "{ignored:?}");
        }
        carry(&mut client, "still here", &mut server).await;
        line.proxy.accept();
        line.connect().await;
    }
    assert_eq!(line.proxy.accepted(), 4, "no ignored connection");
}

#[tokio::test]
async fn healing_ends_all_faults() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.requests().hold();
    line.proxy.replies().delay(HOUR);
    line.proxy.ignore();
    let connecting = tokio::spawn(TcpStream::connect(line.proxy.address()));
    let waiting = timeout(MS(30), line.server.accept()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    say_into(line.proxy.requests(), &mut client, "held").await;
    say_into(line.proxy.replies(), &mut server, "delayed").await;
    line.proxy.heal();
    hear(&mut server, "held").await;
    hear(&mut client, "delayed").await;
    soon(connecting).await.unwrap().expect("at its next try");
    soon(line.server.accept()).await.unwrap();
}

/// The test blocks its only thread, and its clock is paused.
#[tokio::test(start_paused = true)]
async fn relays_while_the_runtime_of_the_test_is_blocked() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::spawn(server.local_addr().unwrap()).unwrap();
    proxy.requests().delay(MS(10));
    let mut client = std::net::TcpStream::connect(proxy.address()).unwrap();
    client.write_all(b"ping").unwrap();
    let mut heard = [0; 4];
    server.accept().unwrap().0.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"ping");
}

/// A proxy and the server behind it.
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

/// Bounds a step that should complete at once.
async fn soon<T>(step: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(5), step)
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

/// Sends a text from one end to the other.
async fn carry(from: &mut TcpStream, text: &str, to: &mut TcpStream) {
    say(from, text).await;
    hear(to, text).await;
}

/// Reads the end of the stream.
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

/// Sends a text, and waits until it has reached the proxy.
async fn say_into(link: &Link, stream: &mut TcpStream, text: &str) {
    let before = link.waiting();
    say(stream, text).await;
    eventually("the text has reached the proxy", || {
        link.waiting() == before + text.len() as u64
    })
    .await;
}
