use std::{
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use deadpool_redis::redis::{Cmd, FromRedisValue, Parser, RedisError, RedisResult};

/// How long a server may take to answer on a busy machine. A frozen server never does.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How many words of a command name the command in an error.
const NAMING_WORDS: usize = 3;

/// How many commands are sent before their answers are read.
const MOST_AT_ONCE: usize = 256;

/// A way to one server, for the few commands with which the kit sets servers up and looks at them. Each use
/// opens a connection, so that no earlier use affects it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands<'a> {
    pub(super) server: SocketAddr,
    pub(super) password: Option<&'a str>,
}

impl Commands<'_> {
    /// Sends a command, and blocks until the server has answered.
    pub(super) fn ask<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T, String> {
        self.connect()?.ask(words)
    }

    pub(super) fn connect(&self) -> Result<Connection, String> {
        let open = || -> RedisResult<BufReader<Uninterrupted>> {
            let stream = TcpStream::connect_timeout(&self.server, ANSWER_LIMIT)?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            stream.set_write_timeout(Some(ANSWER_LIMIT))?;
            stream.set_nodelay(true)?;
            Ok(BufReader::new(Uninterrupted(stream)))
        };
        let stream = open().map_err(|it| failed(self.server, &["connect"], &it))?;
        let mut connection = Connection {
            server: self.server,
            stream,
            parser: Parser::new(),
        };
        if let Some(password) = self.password {
            let _: () = connection.ask(&["AUTH", password])?;
        }
        Ok(connection)
    }
}

/// Gives an order to the first of these servers that accepts it. The error has all refusals.
pub(super) fn order_any<'a>(
    servers: impl IntoIterator<Item = Commands<'a>>,
    order: &[&str],
) -> Result<(), String> {
    let mut refusals = Vec::new();
    for server in servers {
        match server.ask::<()>(order) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(refusals.join("; "))
}

pub(super) struct Connection {
    server: SocketAddr,
    stream: BufReader<Uninterrupted>,
    parser: Parser,
}

impl Connection {
    pub(super) fn ask<T: FromRedisValue>(
        &mut self,
        words: &[impl AsRef<[u8]>],
    ) -> Result<T, String> {
        let answer = self.send(words).and_then(|()| self.read());
        answer.map_err(|it| failed(self.server, words, &it))
    }

    /// Sends commands in one go, for which a server may need one write to its disk instead of many. Each must
    /// be answered with "OK".
    pub(super) fn order_all(&mut self, commands: &[Vec<impl AsRef<[u8]>>]) -> Result<(), String> {
        for commands in commands.chunks(MOST_AT_ONCE) {
            for words in commands {
                let sent = self.send(words);
                sent.map_err(|it| failed(self.server, words, &it))?;
            }
            for words in commands {
                let answer = self.read::<()>();
                answer.map_err(|it| failed(self.server, words, &it))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, words: &[impl AsRef<[u8]>]) -> RedisResult<()> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        Ok(self
            .stream
            .get_mut()
            .0
            .write_all(&command.get_packed_command())?)
    }

    fn read<T: FromRedisValue>(&mut self) -> RedisResult<T> {
        let answer = self.parser.parse_value(&mut self.stream)?;
        Ok(T::from_redis_value(answer.extract_error()?)?)
    }
}

/// A stream whose reads go on after a signal. The parser takes an interrupted read for an error.
struct Uninterrupted(TcpStream);

impl Read for Uninterrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

fn failed(server: SocketAddr, words: &[impl AsRef<[u8]>], error: &RedisError) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|it| String::from_utf8_lossy(it.as_ref()))
        .collect();
    let shown = match words.first() {
        // The rest is a secret.
        Some(name) if name == "AUTH" => 1,
        _ => words.len().min(NAMING_WORDS),
    };
    let command = words[..shown].join(" ");
    format!("the server at {server} did not carry out {command}: {error}")
}
