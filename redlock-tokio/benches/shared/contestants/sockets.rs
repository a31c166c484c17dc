use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures::task::AtomicWaker;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

use super::{Contestant, wire};
use crate::Result;

/// The floor: the same commands over bare sockets, pipelined, without any library. One task a node
/// writes what has queued up in one go, one reads.
///
/// Waits for the majority both ways, as this crate's lock does, and does nothing else that a lock
/// must do: no time limit, no renewal, no reconnecting.
#[derive(Clone)]
pub(crate) struct Sockets {
    nodes: Arc<[mpsc::UnboundedSender<Request>]>,
    release: Arc<str>,
}

/// The same bytes for every node, and where the answers are counted.
struct Request {
    bytes: Arc<[u8]>,
    ballot: Arc<Ballot>,
}

/// What became of one request to all nodes.
#[derive(Default)]
struct Ballot {
    granted: AtomicUsize,
    denied: AtomicUsize,
    waiting: AtomicWaker,
}

impl Ballot {
    fn count(&self, granted: bool) {
        let votes = if granted { &self.granted } else { &self.denied };
        if votes.fetch_add(1, Ordering::AcqRel) + 1 == wire::QUORUM {
            self.waiting.wake();
        }
    }

    async fn verdict(&self) -> Result<()> {
        poll_fn(|cx| {
            self.waiting.register(cx.waker());
            if self.granted.load(Ordering::Acquire) >= wire::QUORUM {
                Poll::Ready(Ok(()))
            } else if self.denied.load(Ordering::Acquire) >= wire::QUORUM {
                Poll::Ready(Err("denied by the majority".into()))
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Sockets {
    async fn ask_all(&self, bytes: Vec<u8>) -> Result<()> {
        let bytes: Arc<[u8]> = bytes.into();
        let ballot = Arc::new(Ballot::default());
        for node in self.nodes.iter() {
            let request = Request {
                bytes: Arc::clone(&bytes),
                ballot: Arc::clone(&ballot),
            };
            node.send(request).map_err(|_| "a connection broke")?;
        }
        ballot.verdict().await
    }
}

impl Contestant for Sockets {
    const NAME: &'static str = "bare sockets";

    type Held = String;

    async fn connect(urls: &[String]) -> Result<Self> {
        let mut nodes = Vec::new();
        let mut release = String::new();
        for url in urls {
            let address = url.trim_start_matches("redis://");
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            release = load_release(&mut stream).await?;
            nodes.push(start(stream));
        }
        Ok(Self {
            nodes: nodes.into(),
            release: release.into(),
        })
    }

    async fn acquire(&self, key: &str) -> Result<String> {
        let token = wire::new_token();
        let cmd = wire::set(key, &token, wire::TTL);
        self.ask_all(cmd.get_packed_command()).await?;
        Ok(token)
    }

    async fn release(&self, key: &str, token: String) -> Result<()> {
        let cmd = wire::compare_and_delete(&self.release, key, &token);
        self.ask_all(cmd.get_packed_command()).await
    }
}

/// Loads the release script. Its answer is the one that is longer than a line: a length, the hash.
async fn load_release(stream: &mut TcpStream) -> Result<String> {
    let text = wire::RELEASE;
    let request = format!(
        "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{text}\r\n",
        text.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut reply = [0; "$40\r\n".len() + 40 + "\r\n".len()];
    stream.read_exact(&mut reply).await?;
    Ok(str::from_utf8(&reply)?
        .lines()
        .nth(1)
        .unwrap_or_default()
        .to_owned())
}

/// The ballots whose answers are still to come, in the order of their requests.
type Asked = Arc<Mutex<VecDeque<Arc<Ballot>>>>;

fn start(stream: TcpStream) -> mpsc::UnboundedSender<Request> {
    let (sender, queue) = mpsc::unbounded_channel();
    let (incoming, outgoing) = stream.into_split();
    let asked = Asked::default();
    // Both end with the connection, or when nobody can ask any more. A request that still waits then has
    // run into the time limit of the measurement.
    tokio::spawn(write(queue, outgoing, Arc::clone(&asked)));
    tokio::spawn(read(incoming, asked));
    sender
}

async fn write(
    mut queue: mpsc::UnboundedReceiver<Request>,
    mut socket: OwnedWriteHalf,
    asked: Asked,
) -> io::Result<()> {
    const MOST: usize = 1024;
    let mut requests = Vec::with_capacity(MOST);
    let mut bytes = Vec::new();
    while queue.recv_many(&mut requests, MOST).await > 0 {
        // Tasks that can run now may ask as well: larger batches make it half as fast again.
        tokio::task::yield_now().await;
        while let Ok(request) = queue.try_recv() {
            requests.push(request);
        }
        bytes.clear();
        {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            for request in requests.drain(..) {
                bytes.extend_from_slice(&request.bytes);
                asked.push_back(request.ballot);
            }
        }
        socket.write_all(&bytes).await?;
    }
    Ok(())
}

async fn read(mut socket: OwnedReadHalf, asked: Asked) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(64 * 1024);
    while socket.read_buf(&mut bytes).await? > 0 {
        let mut end = 0;
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        // Every answer is one line: `+OK`, `:1`, `:0`, `$-1` or an error.
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            end += line.len();
            if let Some(ballot) = asked.pop_front() {
                ballot.count(line.starts_with(b"+OK") || line.starts_with(b":1"));
            }
        }
        drop(asked);
        bytes.drain(..end);
    }
    Ok(())
}
