use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use redlock_kit::RedisServer;

use super::fake::{Fake, bulk};

/// A server that clients see in the shape of another product: a proxy changes the answers to `INFO`, and
/// answers some commands itself.
pub(crate) struct Disguise {
    proxy: Fake,
    target: Arc<Mutex<SocketAddr>>,
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

/// What the client gets for a reply of the server.
type Edit = Box<dyn FnOnce(Vec<u8>) -> Vec<u8> + Send>;

impl Disguise {
    pub(crate) fn of(server: &RedisServer, shape: Shape) -> Self {
        let target = Arc::new(Mutex::new(server.address()));
        let current = Arc::clone(&target);
        let proxy = Fake::serving(move |_, client| {
            let server = TcpStream::connect(*current.lock().unwrap())?;
            shape.serve(client, &server)
        });
        Self { proxy, target }
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }

    /// Lets another server take the place of the first one. All connections break.
    pub(crate) fn hide(&self, server: &RedisServer) {
        *self.target.lock().unwrap() = server.address();
        self.proxy.disconnect();
    }
}

impl Shape {
    /// Serves a client until one of the ends has gone.
    fn serve(self, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (sender, edits) = mpsc::channel::<Edit>();
        let replies = (server.try_clone()?, client.try_clone()?);
        thread::spawn(move || {
            relay(&replies.0, &replies.1, |reply| {
                if reply.starts_with(b">") {
                    // The server pushes it by itself.
                    return reply;
                }
                match edits.recv() {
                    Ok(edit) => edit(reply),
                    Err(_) => reply,
                }
            });
        });
        let mut is_queueing = false;
        relay(client, server, |request| {
            let words = words(&request);
            let name = words.first().map_or("", String::as_str);
            let answer = self.answer(&words);
            let answer = answer.filter(|_| !(is_queueing && self.queues_them));
            let edit: Edit = match answer {
                Some(answer) => Box::new(move |_| answer.into()),
                None if name == "INFO" => Box::new(move |reply| self.rewritten(reply)),
                None => Box::new(|reply| reply),
            };
            is_queueing = name == "MULTI" || is_queueing && !matches!(name, "DISCARD" | "EXEC");
            // The answer to a subscription is a push. An error means that the other direction has ended.
            if name != "SUBSCRIBE" {
                let _ = sender.send(edit);
            }
            match answer {
                // The server answers something in its place.
                Some(_) => b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n".to_vec(),
                None => request,
            }
        });
        Ok(())
    }

    fn answer(&self, words: &[String]) -> Option<&'static str> {
        let command = words.join(" ");
        let is_meant = |name: &str| command == name || words.first().is_some_and(|it| it == name);
        let mut answers = self.answers.iter();
        answers.find_map(|(name, answer)| is_meant(name).then_some(*answer))
    }

    fn rewritten(&self, reply: Vec<u8>) -> Vec<u8> {
        let text = String::from_utf8_lossy(&reply).into_owned();
        match text.split_once("\r\n") {
            Some((header, body)) if header.starts_with(['$', '=']) => {
                // RESP3: the text comes with its format.
                let body = body.strip_prefix("txt:").unwrap_or(body);
                bulk((self.info)(body.trim_end_matches("\r\n")).as_bytes())
            }
            _ => reply,
        }
    }
}

/// Carries what one end sends to the other, until one of them has gone.
fn relay(from: &TcpStream, mut to: &TcpStream, mut change: impl FnMut(Vec<u8>) -> Vec<u8>) {
    let mut reader = BufReader::new(from);
    while let Ok(frame) = read_frame(&mut reader) {
        if to.write_all(&change(frame)).is_err() {
            break;
        }
    }
    // An error means that the end has gone.
    let _ = to.shutdown(Shutdown::Both);
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
