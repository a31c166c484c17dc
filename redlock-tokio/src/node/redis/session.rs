use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use deadpool_redis::redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use futures::{
    FutureExt,
    future::{BoxFuture, join, ready},
};
use redlock_core::{AgeMarker, MemberId, Replication, Tenure};

use super::{
    cluster::identity,
    connect::{Attachment, Opened, send},
    info,
    invalidations::Invalidations,
    key_tag::KeyTag,
    lines::{self, Listening},
    look_up, marker,
    request::{self, Request},
    rights::{self, Rights},
    script::{self, Call},
    server_error::{connect_error, disconnected, needs_password},
};
use crate::{
    Key,
    node::{
        Answer, Command, FoundKeys, FreedNotifier, KeyState, LineAction, LineAnswer, LineRequest,
        NodeError, Server, ServerInfo, Session,
    },
};

/// How long an idle server may take to describe itself. (The lane of a busy server gives up sooner.)
const INSPECTION_LIMIT: Duration = Duration::from_secs(5);

/// The sections of `INFO` that can show a change, for an inspection. The last one is for nodes of a cluster.
const SECTIONS: [&str; 3] = ["server", "replication", "cluster"];

/// A conversation over one multiplexed connection.
pub(super) struct RedisSession {
    multiplexed: MultiplexedConnection,
    _attachment: Attachment,
    tag: KeyTag,
    rights: Rights,
    server: Server,
    sections: &'static [&'static str],
    /// Gets the server's messages that keys are gone, if the server sends them.
    invalidations: Option<Arc<Invalidations>>,
    /// Whether the session is called on a channel. `None` before it has asked for that.
    is_called: Arc<OnceLock<bool>>,
    /// How many batches and inspections were sent.
    requests: u64,
}

impl RedisSession {
    /// Asks the server what it is and what this client may do, and loads the scripts, so that `EVALSHA`
    /// finds them. If the server loads no scripts, they are sent in full by `EVAL`.
    ///
    /// All keys have the tag on the server. In a cluster, the server should be the node `owner`.
    pub(super) async fn open(
        opened: Opened,
        tag: KeyTag,
        owner: Option<MemberId>,
    ) -> Result<Self, NodeError> {
        let Opened {
            connection: mut multiplexed,
            invalidations,
            attachment,
        } = opened;
        let mut pipeline = Pipeline::new();
        // First, because a client that can begin a transaction and not give it up gets no more answers.
        pipeline.cmd("INFO");
        if owner.is_some() {
            pipeline.cmd("CLUSTER").arg("MYID");
        }
        rights::ask(&mut pipeline, &tag);
        script::load(&mut pipeline);
        if invalidations.is_some() {
            // Only probed keys are tracked, and not for changes by this connection.
            let tracking = pipeline.cmd("CLIENT").arg("TRACKING").arg("ON");
            tracking.arg("OPTIN").arg("NOLOOP");
        }
        let replies = send(&mut multiplexed, &pipeline).await;
        let mut replies = replies.map_err(|error| connect_error(&error))?;
        let is_no_auth =
            |it: &Value| matches!(it, Value::ServerError(error) if error.code() == "NOAUTH");
        if replies.iter().any(is_no_auth) {
            return Err(needs_password());
        }
        let invalidations = invalidations.filter(|_| replies.pop() == Some(Value::Okay));
        let mut replies = replies.into_iter();
        let server = info::read_first(replies.next().unwrap_or(Value::Nil))?;
        if let Some(owner) = owner {
            identity::check(&replies.next().unwrap_or(Value::Nil), owner)?;
        }
        let rights = Rights::read(&mut replies);
        Ok(Self {
            multiplexed,
            _attachment: attachment,
            tag,
            rights,
            server,
            sections: if owner.is_some() {
                &SECTIONS
            } else {
                &SECTIONS[..2]
            },
            invalidations,
            is_called: Arc::default(),
            requests: 0,
        })
    }

    /// Returns the connection, and a number for a [`round_trip`].
    fn next_request(&mut self) -> (MultiplexedConnection, u64) {
        self.requests += 1;
        (self.multiplexed.clone(), self.requests)
    }

    fn age_of(&self, marker: String) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        marker::age(self.multiplexed.clone(), self.tag.clone(), marker).boxed()
    }
}

impl Session for RedisSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let (mut connection, number) = self.next_request();
        let is_tracking = self.invalidations.is_some();
        let mut request = Request::new(&self.tag, batch, is_tracking, self.rights.by);
        async move {
            loop {
                let replies = round_trip(&mut connection, request.pipeline_mut(), number).await?;
                if !request.read(replies) {
                    return Ok(request.into_answers());
                }
            }
        }
        .boxed()
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn refusal(&self) -> Option<NodeError> {
        self.rights.denial.clone()
    }

    fn check_prefix(&mut self, prefix: &[u8]) -> BoxFuture<'static, Result<(), NodeError>> {
        rights::check_prefix(self.multiplexed.clone(), self.tag.clone(), prefix.into()).boxed()
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        let mut pipeline = Pipeline::new();
        look_up::ask(&mut pipeline, &self.tag, key);
        let (mut connection, number) = self.next_request();
        async move {
            let replies = round_trip(&mut connection, &mut pipeline, number).await?;
            look_up::read(replies)
        }
        .boxed()
    }

    fn look_up_locks(
        &mut self,
        keys: &[Key],
    ) -> BoxFuture<'static, Result<Vec<KeyState>, NodeError>> {
        let mut pipeline = Pipeline::new();
        look_up::ask_locks(&mut pipeline, &self.tag, keys);
        let (mut connection, number) = self.next_request();
        let count = keys.len();
        async move {
            let replies = round_trip(&mut connection, &mut pipeline, number).await?;
            look_up::read_locks(count, replies)
        }
        .boxed()
    }

    fn search(
        &mut self,
        prefix: &[u8],
        cursor: u64,
    ) -> BoxFuture<'static, Result<FoundKeys, NodeError>> {
        let mut pipeline = Pipeline::new();
        look_up::search(&mut pipeline, &self.tag, prefix, cursor);
        let (mut connection, number) = self.next_request();
        let tag = self.tag.clone();
        async move {
            let replies = round_trip(&mut connection, &mut pipeline, number).await?;
            look_up::found(&tag, replies)
        }
        .boxed()
    }

    fn line(
        &mut self,
        requests: &[LineRequest],
    ) -> BoxFuture<'static, Result<Vec<LineAnswer>, NodeError>> {
        let member = requests.iter().find_map(|it| match it.action {
            LineAction::Join { member, .. } => Some(member),
            _ => None,
        });
        let can_be_called = self.invalidations.is_some() && self.rights.can_call;
        let is_called = Arc::clone(&self.is_called);
        // The subscription is on its way before the first request.
        let listening = can_be_called && is_called.get() != Some(&false);
        let listening = Listening {
            is_called: listening,
            // In a cluster, others may hear a call that is published on another node.
            is_counted: listening && self.tag.len() == 0,
        };
        let (tag, mut by) = (self.tag.clone(), self.rights.by);
        let requests = requests.to_vec();
        let (mut connection, number) = self.next_request();
        async move {
            let mut listener = connection.clone();
            let subscribe = async {
                if let (Some(member), None) = (member, is_called.get()) {
                    // Without the right to the channel, nobody calls.
                    let subscribes =
                        can_be_called && listener.subscribe(lines::channel(member)).await.is_ok();
                    let _ = is_called.set(subscribes);
                }
            };
            let ask = async {
                loop {
                    let mut pipeline = lines::encode(&tag, &requests, listening, by);
                    let replies = round_trip(&mut connection, &mut pipeline, number).await?;
                    if by == Call::InFull || !lines::must_send_script(&replies) {
                        return Ok(replies);
                    }
                    by = Call::InFull;
                }
            };
            // Both are sent at the first poll, in this order.
            let ((), replies): ((), Result<_, NodeError>) = join(subscribe, ask).await;
            let is_called = is_called.get() == Some(&true);
            Ok(lines::read(&requests, replies?, is_called))
        }
        .boxed()
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        if let Some(invalidations) = &self.invalidations {
            invalidations.go_to(self.tag.stripped_for(freed));
        }
        self.invalidations.is_some()
    }

    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let (connection, number) = self.next_request();
        inspect(connection, self.sections, number).boxed()
    }

    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        match &self.server {
            Server::Known(ServerInfo {
                replication: Some(Replication { id, .. }),
                ..
            }) => self.age_of(AgeMarker::key_of_history(*id)),
            _ => ready(Ok(None)).boxed(),
        }
    }

    fn tenure_age(
        &mut self,
        tenure: &Tenure,
    ) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        self.age_of(AgeMarker::key_of_tenure(tenure))
    }
}

/// Sends commands, and a `PING` with a number behind them.
///
/// The redis crate assigns replies to commands only by counting. If a server sent one reply too many or
/// too few, each lock would get the answer of another. So no reply is believed unless the number comes
/// back in its place.
async fn round_trip(
    connection: &mut MultiplexedConnection,
    pipeline: &mut Pipeline,
    number: u64,
) -> Result<Vec<Value>, NodeError> {
    let mut ping = Cmd::with_capacity(2, 24);
    ping.arg("PING").arg(number);
    pipeline.add_command(ping);
    let expected = pipeline.len();
    let values = send(connection, pipeline).await;
    let mut values = values.map_err(|error| disconnected(&error))?;
    if values.len() != expected {
        let text = format!("{} replies to {expected} commands", values.len());
        return Err(NodeError::Unexpected(text.into()));
    }
    match values.pop() {
        Some(echo) if is_echo(&echo, number) => Ok(values),
        _ => Err(NodeError::Unexpected(
            "the replies are out of step with the requests".into(),
        )),
    }
}

/// Returns whether this may be the reply to `PING` with this number. A server may also refuse the command.
fn is_echo(reply: &Value, number: u64) -> bool {
    match reply {
        Value::BulkString(text) => request::number(text) == Some(number),
        Value::ServerError(error) => matches!(
            error.code(),
            "NOPERM" | "NOAUTH" | "LOADING" | "BUSY" | "MASTERDOWN" | "MISCONF" | "ERR"
        ),
        _ => false,
    }
}

/// Asks for sections of `INFO`. This also finds a node that restarted, or a middlebox that forgot the idle connection,
/// before the next request fails.
async fn inspect(
    mut connection: MultiplexedConnection,
    sections: &[&str],
    number: u64,
) -> Result<Server, NodeError> {
    let mut pipeline = Pipeline::new();
    // One by one: servers before Redis 7 know no list of sections.
    for section in sections {
        pipeline.cmd("INFO").arg(section);
    }
    let answer = round_trip(&mut connection, &mut pipeline, number);
    let answer = tokio::time::timeout(INSPECTION_LIMIT, answer).await;
    let sections = answer.unwrap_or(Err(NodeError::TimedOut(INSPECTION_LIMIT)))?;
    Ok(info::read_again(sections))
}
