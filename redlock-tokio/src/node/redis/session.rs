use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{
    Connection,
    redis::{Pipeline, Value, aio::MultiplexedConnection},
};
use futures::{FutureExt, future::BoxFuture};
use redlock_core::Replication;

use super::{
    compare::Compare,
    connect_error, marker,
    part::refusal,
    pushes::Pushes,
    request::Request,
    rights::{self, Rights},
    script, shorten,
};
use crate::node::{Answer, Command, FreedNotifier, NodeError, Server, ServerInfo, Session};

/// How long an idle server may take to say what it is. (A busy one is given up sooner, by its lane.)
const INSPECTION_LIMIT: Duration = Duration::from_secs(5);

/// A conversation over one multiplexed connection.
pub(super) struct RedisSession {
    multiplexed: MultiplexedConnection,
    /// Keeps the pool's slot while the session lives.
    pooled: Option<Connection>,
    /// What this client may do, and with what the server compares values.
    rights: Rights,
    /// Whether it has refused to compare them by command.
    refused: Arc<AtomicBool>,
    server: Server,
    /// Where to tell of keys that are gone, if the server tells of them.
    pushes: Option<Arc<Pushes>>,
    /// How many were sent.
    batches: u64,
    /// How often the server was asked what it is.
    inspections: u64,
}

impl RedisSession {
    /// Loads the scripts, so that `EVALSHA` finds them, and finds out whether they are needed, and
    /// whether this client may do what a lock needs. A server that loads no scripts is no worse off:
    /// there is `EVAL`.
    ///
    /// With `pushes`, what the server says unasked on this connection comes there.
    pub(super) async fn open(
        connection: Connection,
        pushes: Option<Arc<Pushes>>,
    ) -> Result<Self, NodeError> {
        let mut multiplexed = MultiplexedConnection::clone(&connection);
        let mut pipeline = Pipeline::new();
        // First, because a client that can begin a transaction and not give it up gets no more answers.
        pipeline.cmd("INFO");
        rights::ask(&mut pipeline);
        for script in script::all() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        if pushes.is_some() {
            // Of what is looked at, and not of what this connection does itself.
            let tracking = pipeline.cmd("CLIENT").arg("TRACKING").arg("ON");
            tracking.arg("OPTIN").arg("NOLOOP");
        }
        pipeline.cmd("COMMAND").arg("INFO").arg(&Compare::COMMANDS);
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
        let compare = Compare::from_command_info(&replies.pop().unwrap_or(Value::Nil));
        let pushes = pushes.filter(|_| replies.pop() == Some(Value::Okay));
        let mut replies = replies.into_iter();
        let server = read_info(replies.next().unwrap_or(Value::Nil))?;
        let answers: Vec<_> = replies.by_ref().take(rights::REPLIES).collect();
        let knows_scripts = !replies.any(|it| matches!(it, Value::ServerError(_)));
        let rights = Rights::read(&answers, knows_scripts, compare);
        Ok(Self {
            multiplexed,
            pooled: Some(connection),
            rights,
            refused: Arc::default(),
            server,
            pushes,
            batches: 0,
            inspections: 0,
        })
    }

    /// Sends what the server may do.
    fn send(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        if self.refused.load(Ordering::Relaxed) {
            self.rights.compare = Compare::ByScript;
        }
        let mut connection = self.multiplexed.clone();
        let refused = Arc::clone(&self.refused);
        let mut request = Request::new(batch, self.rights.compare, self.pushes.is_some());
        let mut answers = vec![None; batch.len()];
        self.batches += 1;
        let number = self.batches;
        async move {
            loop {
                let replaced = request.take_replaced();
                let replies = round_trip(&mut connection, &mut request, number).await?;
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
}

impl Session for RedisSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        if batch.iter().all(|it| self.rights.refusal(it).is_none()) {
            return self.send(batch);
        }
        let refusals: Vec<_> = batch.iter().map(|it| self.rights.refusal(it)).collect();
        let kept: Vec<_> = batch
            .iter()
            .zip(&refusals)
            .filter(|(_, refusal)| refusal.is_none())
            .map(|(command, _)| command.clone())
            .collect();
        let answers = self.send(&kept);
        async move {
            let mut answers = answers.await?.into_iter();
            let answer = |refusal: Option<NodeError>| match refusal {
                Some(refusal) => Some(Err(refusal)),
                None => answers.next(),
            };
            Ok(refusals.into_iter().map_while(answer).collect())
        }
        .boxed()
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn refusal(&self) -> Option<NodeError> {
        self.rights.denial.clone()
    }

    fn watch(&mut self, freed: FreedNotifier) {
        if let Some(pushes) = &self.pushes {
            pushes.go_to(freed);
        }
    }

    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        self.inspections += 1;
        inspect(self.multiplexed.clone(), self.inspections).boxed()
    }

    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        let replication = match &self.server {
            Server::Known(info) => info.replication,
            Server::None | Server::Withheld(_) => None,
        };
        let connection = self.multiplexed.clone();
        async move {
            match replication {
                Some(Replication { id, .. }) => marker::age(connection, id).await,
                None => Ok(None),
            }
        }
        .boxed()
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
    match read_text(reply) {
        Ok(text) => ServerInfo::parse(&text).map(Server::Known),
        Err(NodeError::Refused { code, message }) if matches!(&*code, "NOPERM" | "ERR") => {
            Ok(Server::Withheld(NodeError::Refused { code, message }))
        }
        // It may be able to later: `LOADING`, `BUSY` and the like.
        Err(error) => Err(NodeError::Unreachable(error.to_string().into())),
    }
}

/// Reads a section of `INFO`, or all of them.
fn read_text(reply: Value) -> Result<String, NodeError> {
    match reply {
        Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Value::VerbatimString { text, .. } => Ok(text),
        Value::ServerError(error) => Err(refusal(&error)),
        _ => Err(NodeError::Unexpected(
            "its answer to INFO is no text".into(),
        )),
    }
}

/// Sends a request, with a `PING` behind it that carries a number.
///
/// The redis crate knows whose reply is whose only by counting. If a server says one word too many,
/// or too few, the next lock would be told what the last one was; so nothing is believed if the number
/// does not come back at its place.
async fn round_trip(
    connection: &mut MultiplexedConnection,
    request: &mut Request,
    number: u64,
) -> Result<Vec<Value>, NodeError> {
    let pipeline = request.pipeline_mut();
    pipeline.cmd("PING").arg(number);
    let expected = pipeline.len();
    let mut values = connection
        .send_packed_commands(pipeline, 0, expected)
        .await
        .map_err(|error| NodeError::Disconnected(shorten(error.to_string()).into()))?;
    if values.len() != expected {
        let text = format!("{} replies to {expected} commands", values.len());
        return Err(NodeError::Unexpected(text.into()));
    }
    match values.pop() {
        Some(echo) if is_echo(&echo, number) => Ok(values),
        _ => Err(NodeError::Unexpected(
            "its replies are out of step with the requests".into(),
        )),
    }
}

/// Whether a reply to `PING` is in its place, as far as can be told: a server may also refuse it.
fn is_echo(reply: &Value, number: u64) -> bool {
    match reply {
        Value::BulkString(text) => *text == number.to_string().as_bytes(),
        Value::ServerError(error) => matches!(
            error.code(),
            "NOPERM" | "NOAUTH" | "LOADING" | "BUSY" | "MASTERDOWN" | "MISCONF" | "ERR"
        ),
        _ => false,
    }
}

/// Asks what the server is, in the two sections of `INFO` that can show a change, behind a `PING` that
/// carries a number. A node that restarts, or a middlebox that forgets idle connections, is found out
/// by it before the next request is.
async fn inspect(mut connection: MultiplexedConnection, number: u64) -> Result<Server, NodeError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("PING").arg(number);
    // One by one: servers before Redis 7 know no list of sections.
    for section in ["server", "replication"] {
        pipeline.cmd("INFO").arg(section);
    }
    let answer = connection.send_packed_commands(&pipeline, 0, pipeline.len());
    let replies = tokio::time::timeout(INSPECTION_LIMIT, answer)
        .await
        .map_err(|_| NodeError::TimedOut(INSPECTION_LIMIT))?
        .map_err(|error| NodeError::Disconnected(shorten(error.to_string()).into()))?;
    let [ping, server, replication]: [Value; 3] = replies.try_into().map_err(|_| {
        NodeError::Unexpected("its replies to PING and INFO are not as many".into())
    })?;
    if !is_echo(&ping, number) {
        return Err(NodeError::Unexpected(
            "its reply to a ping is another's".into(),
        ));
    }
    match (read_text(server), read_text(replication)) {
        (Ok(server), Ok(replication)) => {
            let info = ServerInfo::parse(&[server, replication].join("\r\n"));
            // It told more when it was connected to.
            Ok(info.map_or_else(Server::Withheld, Server::Known))
        }
        // Whatever it answers, it is there.
        (Err(error), _) | (_, Err(error)) => Ok(Server::Withheld(error)),
    }
}
