use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlock_kit::RedisServer;

use crate::Result;

/// A server at a distance: a proxy that holds back whatever passes it, in either direction, for half
/// of a round trip. Any number of chunks are on their way at a time, as on a long line.
///
/// It has threads of its own, for contestants not to share their runtime with it, and because
/// tokio's timers count whole milliseconds.
pub(crate) struct Proxy {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Proxy {
    /// Opens a port that leads to the server.
    pub(crate) fn open(server: &RedisServer, round_trip: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let until = Arc::clone(&closed);
        thread::spawn(move || {
            for downstream in listener.incoming() {
                if until.load(Ordering::Relaxed) {
                    return;
                }
                // A client that cannot be connected sees the connection end, as with a server that is gone.
                let _ = downstream.and_then(|it| connect(&it, upstream, round_trip / 2));
            }
        });
        Ok(Self { address, closed })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // Wakes the thread that listens. If that fails there is none.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(downstream: &TcpStream, upstream: SocketAddr, delay: Duration) -> io::Result<()> {
    let upstream = TcpStream::connect(upstream)?;
    for (from, to) in [(downstream, &upstream), (&upstream, downstream)] {
        to.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (sender, line) = mpsc::channel();
        thread::spawn(move || receive(from, &sender, delay));
        thread::spawn(move || deliver(to, &line));
    }
    Ok(())
}

/// A chunk of bytes and when it arrives.
type Chunk = (Instant, Box<[u8]>);

fn receive(mut from: TcpStream, line: &mpsc::Sender<Chunk>, delay: Duration) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let chunk = (Instant::now() + delay, bytes[..count].into());
        if line.send(chunk).is_err() {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, line: &mpsc::Receiver<Chunk>) {
    for (due, bytes) in line {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side has ended, or this one; either way nothing passes any more.
    let _ = to.shutdown(Shutdown::Both);
}
