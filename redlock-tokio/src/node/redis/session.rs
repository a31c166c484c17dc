use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{
    Connection,
    redis::{self, Pipeline, Value, aio::MultiplexedConnection},
};
use futures::{FutureExt, future::BoxFuture};

use super::{compare::Compare, connect_error, part::refusal, request::Request, script};
use crate::node::{Answer, Command, NodeError, Server, ServerInfo, Session};

/// How often a connection is looked at that may be idle. A node that restarts, or a middlebox that
/// forgets idle connections, is then found out before the next request is.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A conversation over one multiplexed connection.
pub(super) struct RedisSession {
    multiplexed: MultiplexedConnection,
    /// Keeps the pool's slot while the session lives.
    pooled: Option<Connection>,
    /// What the server compares values with, and whether it has refused to.
    compare: Compare,
    refused: Arc<AtomicBool>,
    server: Server,
}

impl RedisSession {
    /// Loads the scripts, so that `EVALSHA` finds them, and finds out whether they are needed. A
    /// server that does not allow it is no worse off: there is always `EVAL`.
    pub(super) async fn open(connection: Connection) -> Result<Self, NodeError> {
        let mut multiplexed = MultiplexedConnection::clone(&connection);
        let mut pipeline = Pipeline::new();
        for script in script::all() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        pipeline.cmd("COMMAND").arg("INFO").arg(&Compare::COMMANDS);
        // Last, so that as little time as possible passes until the clock is read.
        pipeline.cmd("INFO");
        let mut replies = multiplexed
            .send_packed_commands(&pipeline, 0, pipeline.len())
            .await
            .map_err(|error| connect_error(&error))?;
        for reply in &replies {
            if let Value::ServerError(error) = reply
                && error.code() == "NOAUTH"
            {
                return Err(NodeError::Misconfigured("it asks for a password".into()));
            }
        }
        let mut last = || replies.pop().unwrap_or(Value::Nil);
        let (info, commands) = (last(), last());
        Ok(Self {
            multiplexed,
            pooled: Some(connection),
            compare: Compare::from_command_info(&commands),
            refused: Arc::default(),
            server: read_info(info)?,
        })
    }
}

impl Session for RedisSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        if self.refused.load(Ordering::Relaxed) {
            self.compare = Compare::ByScript;
        }
        let mut connection = self.multiplexed.clone();
        let refused = Arc::clone(&self.refused);
        let mut request = Request::new(batch, self.compare);
        let mut answers = vec![None; batch.len()];
        async move {
            loop {
                let replaced = request.take_replaced();
                let replies = round_trip(&mut connection, &request).await?;
                let again = request.read(replies, &mut answers);
                // The script did what the command did not, so it was not because of the key.
                if replaced
                    .iter()
                    .any(|&position| matches!(answers[position], Some(Ok(_))))
                {
                    refused.store(true, Ordering::Relaxed);
                }
                match again {
                    Some(again) => request = again,
                    None => break,
                }
            }
            let unanswered = || Err(NodeError::Unexpected("no answer".into()));
            Ok(answers
                .into_iter()
                .map(|answer| answer.unwrap_or_else(unanswered))
                .collect())
        }
        .boxed()
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        heartbeat(self.multiplexed.clone()).boxed()
    }
}

impl Drop for RedisSession {
    fn drop(&mut self) {
        if let Some(connection) = self.pooled.take() {
            // A session ends when its connection is of no more use, so it must not go back.
            drop(Connection::take(connection));
        }
    }
}

/// Reads the reply to `INFO`.
fn read_info(reply: Value) -> Result<Server, NodeError> {
    match reply {
        Value::BulkString(text) => {
            ServerInfo::parse(&String::from_utf8_lossy(&text)).map(Server::Known)
        }
        Value::VerbatimString { text, .. } => ServerInfo::parse(&text).map(Server::Known),
        Value::ServerError(error) if matches!(error.code(), "NOPERM" | "ERR") => {
            Ok(Server::Withheld(refusal(&error)))
        }
        // It may be able to later: `LOADING`, `BUSY` and the like.
        Value::ServerError(error) => {
            Err(NodeError::Unreachable(refusal(&error).to_string().into()))
        }
        _ => Err(NodeError::Unreachable(
            "its answer to INFO is no text".into(),
        )),
    }
}

async fn round_trip(
    connection: &mut MultiplexedConnection,
    request: &Request,
) -> Result<Vec<Value>, NodeError> {
    let pipeline = request.pipeline();
    let expected = pipeline.len();
    let values = connection
        .send_packed_commands(pipeline, 0, expected)
        .await
        .map_err(|error| NodeError::Disconnected(error.to_string().into()))?;
    if values.len() == expected {
        Ok(values)
    } else {
        let text = format!("{} replies to {expected} commands", values.len());
        Err(NodeError::Unexpected(text.into()))
    }
}

async fn heartbeat(mut connection: MultiplexedConnection) -> NodeError {
    let ping = redis::cmd("PING");
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        // Whatever it answers, it is there. If it does not, a request will time out on it.
        if let Err(error) = connection.send_packed_command(&ping).await
            && (error.is_io_error() || error.is_unrecoverable_error())
        {
            return NodeError::Disconnected(error.to_string().into());
        }
    }
}
