//! How a batch travels: which commands share a request, and which answer is whose.

use std::collections::HashSet;

use deadpool_redis::redis::{self, Arg, Cmd, Pipeline, Value};
use redlock_core::{FencingToken, Operation, Token};

use super::{
    script::{self, Script},
    shorten,
};
use crate::node::{Answer, Command, NodeError, Vote};

/// How a server is asked to change a key only if it has our token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    /// By Lua scripts, of which one call serves many keys. Every server has them.
    ByScript,
    /// By `DELEX key IFEQ token` and `SET key token IFEQ token`: Redis 8.4.
    Delex,
    /// By `DELIFEQ key token` and `SET key token IFEQ token`: Valkey 9.
    DelIfEq,
}

impl Compare {
    /// The commands that tell the servers apart, for `COMMAND INFO`.
    pub(super) const COMMANDS: [&str; 2] = ["DELEX", "DELIFEQ"];

    /// Reads the reply to `COMMAND INFO`: one item for each command, nil for an unknown one.
    pub(super) fn from_command_info(reply: &Value) -> Self {
        let knows = |item: &Value| !matches!(item, Value::Nil | Value::ServerError(_));
        match reply {
            Value::Array(items) if items.first().is_some_and(knows) => Self::Delex,
            Value::Array(items) if items.get(1).is_some_and(knows) => Self::DelIfEq,
            _ => Self::ByScript,
        }
    }
}

/// A pipeline that asks what a batch asks.
pub(super) struct Request {
    pipeline: Pipeline,
    /// What each command of the pipeline is.
    parts: Vec<Part>,
    /// The positions in the batch of what the parts ask, one part after the other.
    positions: Vec<usize>,
    replaces_commands: bool,
}

#[derive(Clone, Copy)]
struct Part {
    form: Form,
    /// How many commands of the batch it carries.
    count: usize,
}

#[derive(Clone, Copy)]
enum Form {
    /// `SET .. NX`.
    Set,
    /// A script that raises a fencing counter.
    Fence(&'static Script),
    /// A script for many keys.
    Many(&'static Script),
    /// A command for one key, and the script that does the same.
    Native(&'static Script),
}

impl Request {
    /// Encodes a batch.
    pub(super) fn new(batch: &[Command], compare: Compare) -> Self {
        let mut request = Self::with_capacity(batch.len());
        if compare == Compare::ByScript {
            let mut stretch = Stretch::default();
            for (position, command) in batch.iter().enumerate() {
                if !stretch.admits(command) {
                    request.push_stretch(&mut stretch, batch);
                }
                stretch.push(position, command);
            }
            request.push_stretch(&mut stretch, batch);
        } else {
            for (position, command) in batch.iter().enumerate() {
                request.push(position, command, compare);
            }
        }
        request
    }

    fn with_capacity(capacity: usize) -> Self {
        Self {
            pipeline: Pipeline::with_capacity(capacity),
            parts: Vec::with_capacity(capacity),
            positions: Vec::with_capacity(capacity),
            replaces_commands: false,
        }
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Hands out the answers that a server's replies hold, by position in the batch. Returns what
    /// must be asked again in another way: scripts that the server has forgotten, commands that it
    /// does not allow.
    pub(super) fn read(self, replies: Vec<Value>, answers: &mut [Option<Answer>]) -> Option<Self> {
        let mut again = Self::with_capacity(0);
        let mut positions = self.positions.as_slice();
        for ((part, cmd), reply) in self
            .parts
            .into_iter()
            .zip(self.pipeline.cmd_iter())
            .zip(replies)
        {
            let (own, rest) = positions.split_at(part.count);
            positions = rest;
            let Some((cmd, form)) = part.form.in_full(cmd, &reply) else {
                part.form.read(reply, own, answers);
                continue;
            };
            again.pipeline.add_command(cmd);
            again.parts.push(Part { form, ..part });
            again.positions.extend_from_slice(own);
            again.replaces_commands |= matches!(part.form, Form::Native(_));
        }
        (!again.parts.is_empty()).then_some(again)
    }

    /// Returns whether it asks by script what the server would not do by command.
    pub(super) fn replaces_commands(&self) -> bool {
        self.replaces_commands
    }

    fn push_stretch(&mut self, stretch: &mut Stretch, batch: &[Command]) {
        self.push_many(&script::EXTEND, &mut stretch.extensions, batch);
        self.push_many(&script::RELEASE, &mut stretch.releases, batch);
        for position in stretch.rest.drain(..) {
            self.push(position, &batch[position], Compare::ByScript);
        }
        stretch.tokens.clear();
    }

    /// `EVALSHA hash n key.. token.. ttl..`
    fn push_many(
        &mut self,
        script: &'static Script,
        positions: &mut Vec<usize>,
        batch: &[Command],
    ) {
        if positions.is_empty() {
            return;
        }
        let commands = || positions.iter().map(|&position| &batch[position]);
        let keys_len: usize = commands().map(|it| it.key().as_bytes().len()).sum();
        let count = positions.len();
        let mut cmd = Cmd::with_capacity(3 + 3 * count, 64 + keys_len + count * (Token::LEN + 8));
        cmd.arg("EVALSHA").arg(script.hash()).arg(count);
        for command in commands() {
            cmd.arg(command.key().as_bytes());
        }
        for command in commands() {
            cmd.arg(command.token());
        }
        for command in commands() {
            if let Operation::Extend { ttl, .. } = command.operation() {
                cmd.arg(ttl.as_millis());
            }
        }
        self.pipeline.add_command(cmd);
        self.parts.push(Part {
            form: Form::Many(script),
            count,
        });
        self.positions.append(positions);
    }

    /// Encodes a command on its own.
    fn push(&mut self, position: usize, command: &Command, compare: Compare) {
        let key = command.key().as_bytes();
        let mut cmd = Cmd::with_capacity(8, 80 + key.len());
        let form = match command.operation() {
            Operation::Acquire {
                ttl, fence: None, ..
            } => {
                cmd.arg("SET").arg(key).arg(command.token());
                cmd.arg("NX").arg("PX").arg(ttl.as_millis());
                Form::Set
            }
            Operation::Acquire {
                ttl,
                fence: Some(fence),
                ..
            } => {
                cmd.arg("EVALSHA").arg(script::ACQUIRE_FENCED.hash());
                cmd.arg(2).arg(key).arg(counter_of(key));
                cmd.arg(command.token()).arg(ttl.as_millis());
                cmd.arg(fence.get());
                Form::Fence(&script::ACQUIRE_FENCED)
            }
            Operation::Fence { fence, .. } => {
                cmd.arg("EVALSHA").arg(script::FENCE.hash());
                cmd.arg(2).arg(key).arg(counter_of(key));
                cmd.arg(command.token()).arg(fence.get());
                Form::Fence(&script::FENCE)
            }
            Operation::Extend { ttl, .. } => {
                // The ttl of a lease never changes, so the latest extension is the longest.
                cmd.arg("SET").arg(key).arg(command.token());
                cmd.arg("IFEQ").arg(command.token());
                cmd.arg("PX").arg(ttl.as_millis());
                Form::Native(&script::EXTEND)
            }
            Operation::Release { .. } => {
                match compare {
                    Compare::Delex => cmd.arg("DELEX").arg(key).arg("IFEQ"),
                    Compare::DelIfEq | Compare::ByScript => cmd.arg("DELIFEQ").arg(key),
                };
                cmd.arg(command.token());
                Form::Native(&script::RELEASE)
            }
        };
        self.pipeline.add_command(cmd);
        self.parts.push(Part { form, count: 1 });
        self.positions.push(position);
    }
}

/// Commands of which the extensions and releases may travel first, so that each kind shares one
/// script: none of them would overtake a command with its own token.
#[derive(Default)]
struct Stretch {
    extensions: Vec<usize>,
    releases: Vec<usize>,
    rest: Vec<usize>,
    /// The tokens of the rest.
    tokens: HashSet<Token>,
}

impl Stretch {
    fn admits(&self, command: &Command) -> bool {
        match command.operation() {
            Operation::Acquire { .. } | Operation::Fence { .. } => true,
            Operation::Extend { token, .. } | Operation::Release { token } => {
                !self.tokens.contains(&token)
            }
        }
    }

    fn push(&mut self, position: usize, command: &Command) {
        match command.operation() {
            Operation::Acquire { token, .. } | Operation::Fence { token, .. } => {
                self.tokens.insert(token);
                self.rest.push(position);
            }
            Operation::Extend { .. } => self.extensions.push(position),
            Operation::Release { .. } => self.releases.push(position),
        }
    }
}

impl Form {
    /// Returns the script in full, if the reply says that the server does not know its hash, or
    /// will not do what it does by command.
    fn in_full(self, cmd: &Cmd, reply: &Value) -> Option<(Cmd, Self)> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        let mut arguments = cmd.args_iter().filter_map(|argument| match argument {
            Arg::Simple(bytes) => Some(bytes),
            // Only `SCAN` has any.
            _ => None,
        });
        let mut full = redis::cmd("EVAL");
        let form = match (self, error.code()) {
            (Self::Many(script) | Self::Fence(script), "NOSCRIPT") => {
                full.arg(script.source());
                for argument in arguments.skip(2) {
                    full.arg(argument);
                }
                self
            }
            (Self::Native(script), "NOPERM" | "ERR") => {
                // `DELEX key IFEQ token`, `DELIFEQ key token`, `SET key token IFEQ token PX ttl`
                let key = arguments.nth(1)?;
                let is_extension = cmd.args_iter().len() > 4;
                let (token, ttl) = match is_extension {
                    true => (arguments.next()?, arguments.last()),
                    false => (arguments.last()?, None),
                };
                full.arg(script.source())
                    .arg(1)
                    .arg(key)
                    .arg(token)
                    .arg(ttl);
                Self::Many(script)
            }
            _ => return None,
        };
        Some((full, form))
    }

    /// Reads the reply to one part.
    fn read(self, reply: Value, positions: &[usize], answers: &mut [Option<Answer>]) {
        match (self, reply) {
            (Self::Many(_), Value::Array(votes)) if votes.len() == positions.len() => {
                for (&position, vote) in positions.iter().zip(votes) {
                    answers[position] = Some(read_vote(vote));
                }
            }
            (Self::Fence(_), Value::BulkString(text)) => {
                answers[positions[0]] = Some(read_counter(&text));
            }
            (Self::Native(_), Value::ServerError(error)) if error.code() == "WRONGTYPE" => {
                answers[positions[0]] = Some(Ok(Vote::Denied));
            }
            (_, reply) => {
                let answer = read_vote(reply);
                for &position in positions {
                    answers[position] = Some(answer.clone());
                }
            }
        }
    }
}

fn read_vote(reply: Value) -> Answer {
    match reply {
        Value::Okay | Value::Int(1) => Ok(Vote::Granted),
        Value::Nil | Value::Int(0) => Ok(Vote::Denied),
        Value::ServerError(error) => Err(NodeError::Refused {
            code: error.code().into(),
            message: shorten(error.details().unwrap_or_default().to_owned()).into(),
        }),
        other => Err(NodeError::Unexpected(shorten(format!("{other:?}")).into())),
    }
}

fn read_counter(text: &[u8]) -> Answer {
    match str::from_utf8(text).map(str::parse) {
        Ok(Ok(counter)) => Ok(Vote::Outbid {
            counter: FencingToken::new(counter),
        }),
        _ => Err(NodeError::Unexpected("a counter that is no number".into())),
    }
}

/// The key of a lock's fencing counter.
fn counter_of(key: &[u8]) -> Vec<u8> {
    [key, b":fence"].concat()
}
