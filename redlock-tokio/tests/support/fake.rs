use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// The commands by which keys are locked, extended and released.
pub(crate) const LOCKING: &[&str] = &["SET", "EVAL", "EVALSHA"];

/// A server that speaks just enough of the protocol for a connection, and answers as a test wants. By
/// default it is a sane master whose keys never expire.
///
/// Each connection has a thread of its own, so that an endless stream blocks no runtime.
pub(crate) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// The event that the server answers.
#[derive(Clone, Copy)]
pub(crate) enum Moment<'a> {
    /// A client has connected and has sent nothing yet.
    Accepted,
    /// A command has arrived; its name comes first.
    Asked(&'a [Vec<u8>]),
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Say(Vec<u8>),
    /// Sends the answer of a sane server, with this text in front and behind, as one packet.
    Obey(&'static str, &'static str),
    /// Sends the bytes again and again, with this time in between, until the client is gone.
    Repeat(Duration, Vec<u8>),
    /// Reads on and sends nothing any more.
    Hush,
    Close,
}

type Manner = Arc<dyn Fn(Moment<'_>) -> Option<Vec<Act>> + Send + Sync>;

struct Shared {
    /// Replaces the answers of a sane server.
    manner: Mutex<Manner>,
    info: Mutex<Vec<u8>>,
    keys: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    streams: Mutex<Vec<TcpStream>>,
    /// A change of this number ends endless answers.
    generation: AtomicUsize,
    closing: AtomicBool,
    connections: AtomicUsize,
    odd_answers: AtomicUsize,
    streamed: AtomicUsize,
    grants: AtomicUsize,
}

impl Fake {
    pub(crate) fn spawn() -> Self {
        static RUN: AtomicU64 = AtomicU64::new(1);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            manner: Mutex::new(Arc::new(|_| None)),
            info: Mutex::new(sane_info(RUN.fetch_add(1, SeqCst)).into_bytes()),
            keys: Mutex::default(),
            streams: Mutex::default(),
            generation: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            odd_answers: AtomicUsize::new(0),
            streamed: AtomicUsize::new(0),
            grants: AtomicUsize::new(0),
        });
        let listening = Arc::clone(&shared);
        thread::spawn(move || listening.listen(&listener));
        Self { address, shared }
    }

    /// Starts a server that answers these commands with these steps. The script without effect that asks at connect
    /// whether there are scripts is none of them.
    pub(crate) fn at(commands: &'static [&'static str], acts: &[Act]) -> Self {
        let fake = Self::spawn();
        fake.be_odd_at(commands, acts);
        fake
    }

    /// Starts a server that takes these steps as soon as a client connects.
    pub(crate) fn at_once(acts: &[Act]) -> Self {
        let fake = Self::spawn();
        let acts = acts.to_vec();
        fake.behave(move |moment| matches!(moment, Moment::Accepted).then(|| acts.clone()));
        fake
    }

    pub(crate) fn be_odd_at(&self, commands: &'static [&'static str], acts: &[Act]) {
        let acts = acts.to_vec();
        self.behave(move |moment| match moment {
            Moment::Asked([_, script, ..]) if script == b"return 1" => None,
            Moment::Asked(command) if is_one_of(command, commands) => Some(acts.clone()),
            _ => None,
        });
    }

    pub(crate) fn be_sane(&self) {
        self.behave(|_| None);
    }

    /// Replaces the answers of a sane server.
    pub(crate) fn behave(
        &self,
        manner: impl Fn(Moment<'_>) -> Option<Vec<Act>> + Send + Sync + 'static,
    ) {
        *self.shared.manner.lock().unwrap() = Arc::new(manner);
        self.shared.generation.fetch_add(1, SeqCst);
    }

    pub(crate) fn set_info(&self, text: impl Into<Vec<u8>>) {
        *self.shared.info.lock().unwrap() = text.into();
    }

    /// Breaks all connections. A client that connects again is served.
    pub(crate) fn disconnect(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            // An error means that the other end has gone.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns how many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Returns how many answers it has begun that a sane server would not give.
    pub(crate) fn odd_answers(&self) -> usize {
        self.shared.odd_answers.load(SeqCst)
    }

    /// Returns how many bytes of endless answers it has sent.
    pub(crate) fn streamed(&self) -> usize {
        self.shared.streamed.load(SeqCst)
    }

    /// Sets a key on behalf of another client.
    pub(crate) fn hold(&self, key: &str) {
        let mut keys = self.shared.keys.lock().unwrap();
        keys.insert(key.into(), b"another's".into());
    }

    /// Returns how many keys it has set as a sane server.
    pub(crate) fn grants(&self) -> usize {
        self.shared.grants.load(SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        self.shared.generation.fetch_add(1, SeqCst);
        self.disconnect();
        // This wakes the listening thread. An error means that the thread has ended.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn listen(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.closing.load(SeqCst) {
                return;
            }
            self.connections.fetch_add(1, SeqCst);
            let Ok(kept) = stream.try_clone() else { return };
            self.streams.lock().unwrap().push(kept);
            let shared = Arc::clone(&self);
            thread::spawn(move || {
                // An error means that the other end has gone.
                let _ = shared.serve(&stream);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        self.answer(stream, Moment::Accepted)?;
        loop {
            let command = read_command(&mut reader)?;
            self.answer(stream, Moment::Asked(&command))?;
        }
    }

    /// Answers one event. An error ends the conversation.
    fn answer(&self, mut stream: &TcpStream, moment: Moment<'_>) -> io::Result<()> {
        let manner = Arc::clone(&self.manner.lock().unwrap());
        let generation = self.generation.load(SeqCst);
        let Some(acts) = manner(moment) else {
            return match moment {
                Moment::Accepted => Ok(()),
                Moment::Asked(command) => stream.write_all(&self.obey(command)),
            };
        };
        self.odd_answers.fetch_add(1, SeqCst);
        for act in acts {
            match act {
                Act::Say(bytes) => stream.write_all(&bytes)?,
                Act::Obey(before, behind) => {
                    let sane = match moment {
                        Moment::Accepted => Vec::new(),
                        Moment::Asked(command) => self.obey(command),
                    };
                    stream.write_all(&[before.as_bytes(), &sane, behind.as_bytes()].concat())?;
                }
                // Until the server has other manners.
                Act::Repeat(pause, bytes) => {
                    while self.generation.load(SeqCst) == generation {
                        stream.write_all(&bytes)?;
                        self.streamed.fetch_add(bytes.len(), SeqCst);
                        thread::sleep(pause);
                    }
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Act::Hush => {
                    io::copy(&mut stream, &mut io::sink())?;
                }
                Act::Close => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        Ok(())
    }

    /// Returns the answer of a sane server.
    fn obey(&self, command: &[Vec<u8>]) -> Vec<u8> {
        let (name, arguments) = command.split_first().expect("a command has a name");
        match name.to_ascii_uppercase().as_slice() {
            b"HELLO" => b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n".into(),
            b"PING" => arguments.first().map_or(b"+PONG\r\n".into(), |it| bulk(it)),
            b"INFO" => bulk(&self.info.lock().unwrap()),
            // No client relies on this answer.
            b"SCRIPT" => bulk(&[b'0'; 40]),
            b"CLIENT" | b"AUTH" | b"SELECT" => b"+OK\r\n".into(),
            // Clients ask these when they connect, to test their rights. This server has no transactions.
            b"MULTI" | b"DISCARD" => b"-ERR unknown command\r\n".into(),
            b"SET" if arguments[2..] == [b"NX".to_vec(), b"XX".to_vec()] => {
                b"-ERR syntax error\r\n".into()
            }
            b"ECHO" => bulk(&arguments[0]),
            b"SET" => self.set(&arguments[0], &arguments[1]),
            b"EVALSHA" => b"-NOSCRIPT it has a short memory\r\n".into(),
            b"EVAL" => self.eval(&String::from_utf8_lossy(&arguments[0]), &arguments[1..]),
            _ => b"-ERR it is of no use\r\n".into(),
        }
    }

    fn set(&self, key: &[u8], token: &[u8]) -> Vec<u8> {
        let mut keys = self.keys.lock().unwrap();
        if keys.contains_key(key) {
            return b"$-1\r\n".into();
        }
        keys.insert(key.into(), token.into());
        self.grants.fetch_add(1, SeqCst);
        b"+OK\r\n".into()
    }

    /// Runs the scripts that extend and release, and tells them apart by a command that only one of them
    /// has.
    fn eval(&self, source: &str, arguments: &[Vec<u8>]) -> Vec<u8> {
        let count: usize = String::from_utf8_lossy(&arguments[0]).parse().unwrap();
        let tokens = &arguments[1 + count..];
        let mut keys = self.keys.lock().unwrap();
        let is_extension = source.contains("'PEXPIRE'");
        let votes: Vec<&str> = arguments[1..=count]
            .iter()
            .zip(tokens)
            .map(|(key, token)| {
                let is_ours = keys.get(key) == Some(token);
                if is_ours && source.contains("'DEL'") {
                    keys.remove(key);
                }
                match (is_extension, is_ours) {
                    (true, true) => "1000",
                    (true, false) => "-",
                    (false, true) => "1",
                    (false, false) => "0",
                }
            })
            .collect();
        bulk(votes.join(if is_extension { "," } else { "" }).as_bytes())
    }
}

/// Returns whether a command is one of those named.
pub(crate) fn is_one_of(command: &[Vec<u8>], names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()))
}

pub(crate) fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Returns the `INFO` of a master that has been up for long and keeps its keys.
pub(crate) fn sane_info(run: u64) -> String {
    format!(
        "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nprocess_id:1\r\n\
         run_id:{run:040x}\r\nuptime_in_seconds:1000000\r\n\r\n\
         # Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\r\n\
         # Persistence\r\nloading:0\r\naof_enabled:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\
         master_replid:{run:040x}\r\nmaster_replid2:{:040}\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n",
        0
    )
}

fn read_command(reader: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let count = read_count(reader, b'*')?;
    (0..count)
        .map(|_| {
            let mut bytes = vec![0; read_count(reader, b'$')? + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(bytes)
        })
        .collect()
}

fn read_count(reader: &mut impl BufRead, kind: u8) -> io::Result<usize> {
    let mut line = Vec::new();
    reader.take(32).read_until(b'\n', &mut line)?;
    let digits = line.strip_prefix(&[kind]).unwrap_or_default();
    let parsed = str::from_utf8(digits).map(|digits| digits.trim().parse());
    match parsed {
        Ok(Ok(count)) => Ok(count),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
