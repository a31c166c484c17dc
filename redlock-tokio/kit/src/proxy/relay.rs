use std::{
    future::pending,
    io,
    net::SocketAddr,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
    time::Instant,
};

use super::link::{Link, Links, Route};

/// The largest parcel in bytes.
const PARCEL: usize = 64 * 1024;

/// One client's connection through the proxy.
pub(super) struct Relay {
    number: u64,
    client: TcpStream,
    links: Arc<Links>,
}

impl Relay {
    pub(super) fn new(client: TcpStream, links: Arc<Links>) -> Self {
        reset_when_dropped(&client);
        links.replies.count_connection();
        Self {
            number: links.requests.count_connection(),
            client,
            links,
        }
    }

    /// Relays until both directions have ended, or one of them breaks. If the future is dropped before, both
    /// sides get a reset.
    pub(super) async fn run(mut self) {
        let number = self.number;
        let mut route = self.links.route.subscribe();
        loop {
            let Route { target, moved } = *route.borrow_and_update();
            let Ok(mut server) = connect(target).await else {
                // "Connection refused" is not possible any more, since the client was accepted. It gets a reset,
                // subject to the faults of that direction.
                if !self.links.replies.passes(number, Instant::now()).await {
                    pending::<()>().await;
                }
                return;
            };
            for stream in [&self.client, &server] {
                // Nagle's algorithm would delay chunks until earlier ones are acknowledged. This fails
                // only on a connection that is gone already, which the next read shows.
                let _ = stream.set_nodelay(true);
            }
            let (from_client, to_client) = self.client.split();
            let (from_server, to_server) = server.split();
            let requests = pipe(&self.links.requests, number, from_client, to_server);
            let replies = pipe(&self.links.replies, number, from_server, to_client);
            let both = async { tokio::try_join!(requests, replies) };
            tokio::select! {
                outcome = both => {
                    if outcome.is_ok() {
                        close_when_dropped(&self.client);
                        close_when_dropped(&server);
                    }
                    return;
                }
                // The client keeps its connection. An error would mean that the links are gone.
                _ = route.wait_for(|it| it.moved != moved) => {}
            }
        }
    }
}

async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = if target.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Before the connect, since the future may be dropped at any time from then on.
    reset_when_dropped(&socket);
    socket.connect(target).await
}

/// The connection is broken, and the other side must be reset.
struct Broken;

/// Bytes on their way through a link.
struct Parcel<'a> {
    arrived: Instant,
    content: Content,
    link: &'a Link,
}

enum Content {
    Bytes(Vec<u8>),
    /// The sender has ended its direction.
    End,
    /// The connection to the sender broke.
    Break,
}

impl<'a> Parcel<'a> {
    fn new(link: &'a Link, content: Content) -> Self {
        let parcel = Self {
            arrived: Instant::now(),
            content,
            link,
        };
        link.waiting.fetch_add(parcel.len(), SeqCst);
        parcel
    }

    fn len(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::End | Content::Break => 0,
        }
    }
}

impl Drop for Parcel<'_> {
    fn drop(&mut self) {
        self.link.waiting.fetch_sub(self.len(), SeqCst);
    }
}

/// Carries one direction of a connection to its end.
async fn pipe(
    link: &Link,
    number: u64,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
) -> Result<(), Broken> {
    // Unbounded, so that parcels on their way do not delay later ones. Tests send little.
    let (sender, receiver) = mpsc::unbounded_channel();
    let ((), outcome) = tokio::join!(
        take_in(link, from, sender),
        give_out(link, number, receiver, to)
    );
    outcome
}

async fn take_in<'a>(
    link: &'a Link,
    mut from: impl AsyncRead + Unpin,
    parcels: mpsc::UnboundedSender<Parcel<'a>>,
) {
    let mut buffer = vec![0; PARCEL];
    loop {
        let content = match from.read(&mut buffer).await {
            Ok(0) => Content::End,
            Ok(count) => Content::Bytes(buffer[..count].to_vec()),
            Err(_) => Content::Break,
        };
        let is_last = !matches!(content, Content::Bytes(_));
        let sent = parcels.send(Parcel::new(link, content));
        if sent.is_err() || is_last {
            return;
        }
    }
}

async fn give_out(
    link: &Link,
    number: u64,
    mut parcels: mpsc::UnboundedReceiver<Parcel<'_>>,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), Broken> {
    // A stream has no gaps: after a loss, nothing that follows can arrive.
    let mut has_gap = false;
    while let Some(parcel) = parcels.recv().await {
        if has_gap || !link.passes(number, parcel.arrived).await {
            has_gap = true;
            link.lost.fetch_add(parcel.len(), SeqCst);
            continue;
        }
        match &parcel.content {
            // The pipe in the other direction notices a receiver that is gone, and reports it subject to
            // the faults of that direction.
            Content::Bytes(bytes) => {
                let counter = match to.write_all(bytes).await {
                    Ok(()) => &link.passed,
                    Err(_) => &link.lost,
                };
                counter.fetch_add(parcel.len(), SeqCst);
            }
            Content::End => {
                let _ = to.shutdown().await;
            }
            Content::Break => return Err(Broken),
        }
    }
    Ok(())
}

fn reset_when_dropped(stream: &impl AsFd) {
    // Fails only on a connection that is gone already.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

fn close_when_dropped(stream: &impl AsFd) {
    let _ = set_socket_linger(stream, None);
}
