//! What the [faults](crate::faults) do not show of a test `Proxy`, observed at both ends of a connection.

use std::{io::ErrorKind, time::Duration};

use redlock_kit::{Link, Proxy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{MS, eventually};

#[tokio::test]
async fn bytes_are_delayed_independently_held_in_order_and_lost_with_all_later_ones() {
    const DELAY: Duration = Duration::from_secs(1);
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    let requests = line.proxy.requests();
    requests.delay(DELAY);
    let started = Instant::now();
    for word in ["a", "b", "c", "d"] {
        say_into(requests, &mut client, word).await;
    }
    hear(&mut server, "abcd").await;
    let passed = started.elapsed();
    assert!(passed >= DELAY && passed < 3 * DELAY, "{passed:?}");

    eventually("none is left", || requests.waiting() == 0).await;
    requests.delay(Duration::MAX);
    say_into(requests, &mut client, "first, ").await;
    hear_nothing(&mut server).await;
    carry(&mut server, "the other direction is open", &mut client).await;
    requests.hold();
    requests.delay(Duration::ZERO);
    hear_nothing(&mut server).await;
    say_into(requests, &mut client, "second").await;
    requests.delay(Duration::MAX);
    line.proxy.heal();
    hear(&mut server, "first, second").await;

    requests.lose();
    say(&mut client, "lost").await;
    eventually("the text is lost", || requests.lost() == 4).await;
    requests.pass();
    say(&mut client, ", and this").await;
    eventually("the next text, too", || requests.lost() == 14).await;
    hear_nothing(&mut server).await;
    assert_eq!((requests.waiting(), requests.passed()), (0, 17));
    let (mut second, mut its_server) = line.connect().await;
    carry(&mut second, "a new connection", &mut its_server).await;
}

#[tokio::test]
async fn ends_and_resets_reach_the_other_side_unless_they_are_held() {
    let line = Line::new().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.replies().hold();
    server.shutdown().await.unwrap();
    hear_nothing(&mut client).await;
    line.proxy.replies().pass();
    assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0, "the end");

    let (mut client, mut server) = line.connect().await;
    line.proxy.reset();
    hear_of_a_reset(&mut client).await;
    hear_of_a_reset(&mut server).await;

    let (mut client, server) = line.connect().await;
    line.proxy.replies().hold();
    server.set_zero_linger().unwrap();
    drop(server);
    hear_nothing(&mut client).await;
    line.proxy.replies().pass();
    hear_of_a_reset(&mut client).await;
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
