use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use deadpool_redis::redis::{Cmd, FromRedisValue, Parser, RedisError, RedisResult};

use super::topology_error::TopologyError;

/// How long a server may take to answer. A frozen server never does.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How many words of a command name the command in an error.
const NAMING_WORDS: usize = 3;

/// A way to one server, for the few commands with which the kit sets servers up and looks at them. Each use
/// opens a connection, so that no earlier use affects it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands<'a> {
    pub(super) server: SocketAddr,
    pub(super) password: Option<&'a str>,
}

impl Commands<'_> {
    /// Sends a command, and blocks until the server has answered.
    pub(super) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, TopologyError> {
        self.connect()?.ask(words)
    }

    pub(super) fn connect(&self) -> Result<Connection, TopologyError> {
        let open = || -> RedisResult<BufReader<TcpStream>> {
            let stream = TcpStream::connect_timeout(&self.server, ANSWER_LIMIT)?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            stream.set_write_timeout(Some(ANSWER_LIMIT))?;
            stream.set_nodelay(true)?;
            Ok(BufReader::new(stream))
        };
        let stream = open().map_err(|it| failed(self.server, &["connect"], it))?;
        let server = self.server;
        let parser = Parser::new();
        let mut connection = Connection {
            server,
            stream,
            parser,
        };
        if let Some(password) = self.password {
            let _: () = connection.ask(&["AUTH", password])?;
        }
        Ok(connection)
    }
}

/// A connection to one server.
pub(super) struct Connection {
    server: SocketAddr,
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl Connection {
    pub(super) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, TopologyError> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        self.exchange(&command)
            .map_err(|it| failed(self.server, words, it))
    }

    fn exchange<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let request = command.get_packed_command();
        self.stream.get_mut().write_all(&request)?;
        let answer = self.parser.parse_value(&mut self.stream)?;
        Ok(T::from_redis_value(answer.extract_error()?)?)
    }
}

fn failed(server: SocketAddr, words: &[&str], source: RedisError) -> TopologyError {
    let words = match words {
        // The rest is a secret.
        ["AUTH", ..] => &words[..1],
        _ => &words[..words.len().min(NAMING_WORDS)],
    };
    TopologyError::Command {
        server,
        command: words.join(" "),
        source,
    }
}
