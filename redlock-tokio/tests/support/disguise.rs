use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use redlock_kit::RedisServer;

use super::fake::bulk;

/// A server that clients see in the shape of another product: a proxy changes the answers to `INFO`, and
/// answers some commands itself.
pub(crate) struct Disguise {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What the clients see.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Rewrites one answer to `INFO`.
    pub(crate) info: fn(&str) -> String,
    /// The commands that the proxy answers, such as `EVAL` or `CLIENT TRACKING`, each with its answer.
    pub(crate) answers: &'static [(&'static str, &'static str)],
    /// Whether a transaction accepts these commands all the same.
    pub(crate) queues_them: bool,
}

struct Shared {
    shape: Shape,
    target: Mutex<SocketAddr>,
    streams: Mutex<Vec<TcpStream>>,
    closing: AtomicBool,
}

/// What the proxy does with the next reply of a server.
enum Edit {
    Nothing,
    RewriteInfo,
    Replace(&'static str),
}

impl Disguise {
    pub(crate) fn of(server: &RedisServer, shape: Shape) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            shape,
            target: Mutex::new(server.address()),
            streams: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let listening = Arc::clone(&shared);
        thread::spawn(move || listening.listen(&listener));
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Lets another server take the place of the first one. All connections break.
    pub(crate) fn hide(&self, server: &RedisServer) {
        *self.shared.target.lock().unwrap() = server.address();
        self.disconnect();
    }

    fn disconnect(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            // An error means that the other end has gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Disguise {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        self.disconnect();
        // This wakes the listening thread. An error means that the thread has ended.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn listen(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            if self.closing.load(SeqCst) {
                return;
            }
            // An error means that the server is down. The client then finds its connection closed.
            let _ = Arc::clone(&self).serve(client);
        }
    }

    fn serve(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(*self.target.lock().unwrap())?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            self.streams.lock().unwrap().push(stream.try_clone()?);
        }
        let edits = Arc::new(Mutex::new(VecDeque::new()));
        let requests = (client.try_clone()?, server.try_clone()?);
        let (there, queue) = (Arc::clone(&self), Arc::clone(&edits));
        thread::spawn(move || {
            let (client, server) = requests;
            // An error means that an end has gone.
            let _ = there.relay_requests(&client, &server, &queue);
            let _ = server.shutdown(Shutdown::Both);
        });
        thread::spawn(move || {
            let _ = self.relay_replies(&server, &client, &edits);
            let _ = client.shutdown(Shutdown::Both);
        });
        Ok(())
    }

    fn relay_requests(
        &self,
        client: &TcpStream,
        mut server: &TcpStream,
        edits: &Mutex<VecDeque<Edit>>,
    ) -> io::Result<()> {
        let mut reader = BufReader::new(client);
        let mut is_queueing = false;
        loop {
            let frame = read_frame(&mut reader)?;
            let words = words(&frame);
            let name = words.first().cloned().unwrap_or_default();
            let edit = match self.answer(&words) {
                Some(answer) if !(is_queueing && self.shape.queues_them) => Edit::Replace(answer),
                _ if name == "INFO" => Edit::RewriteInfo,
                _ => Edit::Nothing,
            };
            is_queueing = match &*name {
                "MULTI" => true,
                "DISCARD" | "EXEC" => false,
                _ => is_queueing,
            };
            let is_replaced = matches!(edit, Edit::Replace(_));
            edits.lock().unwrap().push_back(edit);
            if is_replaced {
                // The server answers something in its place.
                server.write_all(b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n")?;
            } else {
                server.write_all(&frame)?;
            }
        }
    }

    fn relay_replies(
        &self,
        server: &TcpStream,
        mut client: &TcpStream,
        edits: &Mutex<VecDeque<Edit>>,
    ) -> io::Result<()> {
        let mut reader = BufReader::new(server);
        loop {
            let frame = read_frame(&mut reader)?;
            let is_push = frame.first() == Some(&b'>');
            let edit = if is_push {
                Edit::Nothing
            } else {
                edits.lock().unwrap().pop_front().unwrap_or(Edit::Nothing)
            };
            match edit {
                Edit::Nothing => client.write_all(&frame)?,
                Edit::Replace(answer) => client.write_all(answer.as_bytes())?,
                Edit::RewriteInfo => client.write_all(&self.rewritten(&frame))?,
            }
        }
    }

    fn answer(&self, words: &[String]) -> Option<&'static str> {
        let command = words.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
        let is_meant = |name: &str| command == name || command.split(' ').next() == Some(name);
        let mut answers = self.shape.answers.iter();
        answers
            .find(|(name, _)| is_meant(name))
            .map(|(_, answer)| *answer)
    }

    fn rewritten(&self, frame: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(frame);
        let Some((header, body)) = text.split_once("\r\n") else {
            return frame.to_vec();
        };
        let body = body.trim_end_matches("\r\n");
        match header.as_bytes().first() {
            Some(b'$') => bulk((self.shape.info)(body).as_bytes()),
            // RESP3: the text comes with its format.
            Some(b'=') => {
                let body = body.strip_prefix("txt:").unwrap_or(body);
                bulk((self.shape.info)(body).as_bytes())
            }
            _ => frame.to_vec(),
        }
    }
}

/// Returns the first words of a command, in capitals.
fn words(frame: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(frame);
    let lines = text.split("\r\n").skip(2).step_by(2).take(2);
    lines.map(str::to_ascii_uppercase).collect()
}

/// Reads one value of the protocol, as bytes.
fn read_frame(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    if reader.read_until(b'\n', &mut frame)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&frame).into_owned();
    let count = || text[1..].trim_end().parse::<i64>().unwrap_or(0);
    match frame[0] {
        b'$' | b'=' | b'!' if count() >= 0 => {
            let len = u64::try_from(count()).unwrap() + 2;
            reader.by_ref().take(len).read_to_end(&mut frame)?;
        }
        kind @ (b'*' | b'~' | b'>' | b'%' | b'|') => {
            let values = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
            for _ in 0..count() * values {
                frame.extend(read_frame(reader)?);
            }
        }
        _ => {}
    }
    Ok(frame)
}
