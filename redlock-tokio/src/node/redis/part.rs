use std::time::Duration;

use deadpool_redis::redis::{self, Arg, Cmd, ServerError, Value};
use redlock_core::FencingToken;

use super::{
    rights::is_denied_command,
    script::{self, Script},
    shorten,
};
use crate::node::{Answer, CounterDefect, NodeError, Vote};

/// What `PTTL` says of a key that does not exist.
const PTTL_NO_KEY: i64 = -2;

/// One command of a pipeline, and whom its reply is for.
#[derive(Clone, Copy)]
pub(super) struct Part {
    form: Form,
    /// How many commands of the batch it carries.
    pub(super) count: usize,
    /// Its script was sent in full.
    in_full: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Form {
    /// `SET .. NX`.
    Set,
    /// `SET .. NX` and the raising of a fencing counter, by a script that is sent in full.
    AcquireFenced,
    /// The raising alone, by a script.
    Fence,
    /// Extensions of many keys, by one script.
    Extensions,
    /// Releases of many keys, by one script.
    Releases,
    /// `PTTL`, before `SET .. IFEQ`.
    Peek,
    /// `SET .. IFEQ`.
    Extend,
    /// `DELEX` or `DELIFEQ`.
    Release,
    /// `CLIENT CACHING YES`, whose answer is of no interest.
    Caching,
    /// `PTTL`, of a key that may be anybody's.
    Probe,
    /// What is done to several keys or to none, by scripts that are sent in full.
    AcquireAll,
    ExtendAll,
    ReleaseAll,
}

impl Form {
    fn script(self) -> Option<&'static Script> {
        match self {
            Self::Fence => Some(&script::FENCE),
            Self::Extensions | Self::Extend => Some(&script::EXTEND),
            Self::Releases | Self::Release => Some(&script::RELEASE),
            Self::Set
            | Self::AcquireFenced
            | Self::Peek
            | Self::Caching
            | Self::Probe
            | Self::AcquireAll
            | Self::ExtendAll
            | Self::ReleaseAll => None,
        }
    }

    /// Reads a reply that says yes or no, in the words of this form and no other.
    fn read_vote(self, reply: Value) -> Answer {
        match (self, reply) {
            (_, Value::ServerError(error)) => Err(refusal(&error)),
            (Self::Set | Self::Extend, Value::Okay)
            | (
                Self::Fence
                | Self::AcquireFenced
                | Self::Release
                | Self::AcquireAll
                | Self::ReleaseAll,
                Value::Int(1),
            ) => Ok(Vote::Granted),
            (Self::Set | Self::Extend | Self::Fence | Self::AcquireFenced, Value::Nil)
            | (Self::Release | Self::AcquireAll | Self::ReleaseAll, Value::Int(0)) => {
                Ok(Vote::Denied)
            }
            (Self::Probe, Value::Int(PTTL_NO_KEY)) => Ok(Vote::Free),
            (Self::Probe, Value::Int(left)) => Ok(Vote::Taken {
                remaining: time_left(left),
            }),
            (_, other) => Err(NodeError::Unexpected(shorten(format!("{other:?}")).into())),
        }
    }
}

impl Part {
    pub(super) fn shared(form: Form, count: usize) -> Self {
        Self {
            form,
            count,
            in_full: false,
        }
    }

    fn in_full(form: Form, count: usize) -> Self {
        Self {
            form,
            count,
            in_full: true,
        }
    }

    /// Returns whether the reply says that the server does not do this by command, which may be
    /// because of the command or because of the key.
    pub(super) fn is_unknown_command(self, reply: &Value) -> bool {
        matches!(self.form, Form::Extend | Form::Release)
            && matches!(reply, Value::ServerError(error) if matches!(error.code(), "NOPERM" | "ERR"))
    }

    /// Returns what to ask instead, because of the reply; nothing if the reply is an answer.
    pub(super) fn instead(self, cmd: &Cmd, reply: &Value) -> Vec<(Cmd, Self)> {
        let (Value::ServerError(error), Some(script)) = (reply, self.form.script()) else {
            return Vec::new();
        };
        let arguments: Vec<&[u8]> = arguments(cmd).collect();
        match (self.form, error.code()) {
            _ if is_other_type(error) => Vec::new(),
            // The server was restarted, somebody flushed its scripts, or only `EVAL` may be used.
            (Form::Fence | Form::Extensions | Form::Releases, code)
                if !self.in_full
                    && arguments.len() > 2
                    && (code == "NOSCRIPT" || is_denied_command(error)) =>
            {
                let mut full = redis::cmd("EVAL");
                full.arg(script.source()).arg(&arguments[2..]);
                vec![(full, Self::in_full(self.form, self.count))]
            }
            // `SET key token IFEQ token PX ttl`. By `SET` it would need memory.
            (Form::Extend, "NOPERM" | "ERR" | "OOM") if arguments.len() == 7 => {
                let [key, token, ttl] = [arguments[1], arguments[2], arguments[6]];
                let full = eval(script, key, token, Some(ttl));
                vec![(full, Self::in_full(Form::Extensions, 1))]
            }
            // `DELEX key IFEQ token`, `DELIFEQ key token`
            (Form::Release, "NOPERM" | "ERR") if arguments.len() > 2 => {
                let [key, token] = [arguments[1], arguments[arguments.len() - 1]];
                let full = eval(script, key, token, None);
                vec![(full, Self::in_full(Form::Releases, 1))]
            }
            // One key among them may be the reason: `EVAL source n key.. token.. ttl..`
            (Form::Extensions | Form::Releases, code)
                if self.count > 1 && !is_of_the_server(code) =>
            {
                let n = self.count;
                let alone = |i| {
                    let (key, token) = (*arguments.get(3 + i)?, *arguments.get(3 + n + i)?);
                    let ttl = arguments.get(3 + 2 * n + i).copied();
                    let full = eval(script, key, token, ttl);
                    Some((full, Self::in_full(self.form, 1)))
                };
                (0..n).filter_map(alone).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Reads the reply.
    pub(super) fn read(
        self,
        cmd: &Cmd,
        reply: Value,
        positions: &[usize],
        answers: &mut [Option<Answer>],
    ) {
        match (self.form, reply) {
            (Form::Releases, Value::BulkString(digits)) if digits.len() == positions.len() => {
                for (&position, digit) in positions.iter().zip(digits) {
                    answers[position] = Some(match digit {
                        b'1' => Ok(Vote::Granted),
                        b'0' => Ok(Vote::Denied),
                        _ => Err(NodeError::Unexpected("a vote that is no digit".into())),
                    });
                }
            }
            (Form::Extensions, Value::BulkString(text))
                if text.split(is_comma).count() == positions.len() =>
            {
                for (&position, number) in positions.iter().zip(text.split(is_comma)) {
                    answers[position] = Some(read_remaining(number));
                }
            }
            (Form::Fence | Form::AcquireFenced, Value::BulkString(text)) => {
                answers[positions[0]] = Some(read_counter(&text));
            }
            (Form::Fence | Form::AcquireFenced, Value::ServerError(error))
                if error.code() == "NOCOUNTER" =>
            {
                answers[positions[0]] = Some(Err(no_counter(cmd, &error)));
            }
            (Form::Fence | Form::AcquireFenced, Value::ServerError(error))
                if error.code() == "NOPERM" && !is_denied_command(&error) =>
            {
                answers[positions[0]] = Some(Err(no_right_to_counter(cmd, &error)));
            }
            (Form::Peek, Value::Int(left)) if left != PTTL_NO_KEY => {
                answers[positions[0]] = Some(Ok(extended(left)));
            }
            // Then the extension is told without it.
            (Form::Peek, _) => {}
            (Form::ExtendAll, Value::BulkString(left)) => {
                answers[positions[0]] = Some(read_remaining(&left));
            }
            (Form::Probe, reply) => {
                let answer = Form::Probe.read_vote(reply);
                let answer = match (answers[positions[0]].take(), answer) {
                    // Another of several keys; the last to be free counts.
                    (Some(Ok(Vote::Taken { remaining })), Ok(Vote::Taken { remaining: other })) => {
                        Ok(Vote::Taken {
                            remaining: remaining.max(other),
                        })
                    }
                    (Some(Ok(Vote::Free)) | None, answer) => answer,
                    (Some(earlier), _) => earlier,
                };
                answers[positions[0]] = Some(answer);
            }
            (Form::Extend, Value::Okay) if answers[positions[0]].is_some() => {}
            (Form::Extend | Form::Release, Value::ServerError(error)) if is_other_type(&error) => {
                answers[positions[0]] = Some(Ok(Vote::Denied));
            }
            (form, reply) => {
                let answer = form.read_vote(reply);
                for &position in positions {
                    answers[position] = Some(answer.clone());
                }
            }
        }
    }
}

/// `EVAL source 1 key token [ttl]`
fn eval(script: &Script, key: &[u8], token: &[u8], ttl: Option<&[u8]>) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script.source()).arg(1).arg(key).arg(token).arg(ttl);
    cmd
}

pub(super) fn arguments(cmd: &Cmd) -> impl Iterator<Item = &[u8]> {
    cmd.args_iter().filter_map(|argument| match argument {
        Arg::Simple(bytes) => Some(bytes),
        // A cursor, which only `SCAN` has.
        _ => None,
    })
}

/// Whether the key holds something else than text, so that it is not ours. (Redis 8.4 gives the
/// error of `DELEX` no code of its own.)
fn is_other_type(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default();
    error.code() == "WRONGTYPE" || details.contains("should be of string type")
}

/// Whether an error speaks of the server, so that no key alone would fare better.
fn is_of_the_server(code: &str) -> bool {
    matches!(
        code,
        "NOSCRIPT"
            | "BUSY"
            | "LOADING"
            | "READONLY"
            | "MASTERDOWN"
            | "MISCONF"
            | "NOAUTH"
            | "NOREPLICAS"
            | "OOM"
    )
}

fn is_comma(byte: &u8) -> bool {
    *byte == b','
}

/// Says what is under the name of a fencing counter: `EVAL source 2 key counter ..`.
fn no_counter(cmd: &Cmd, error: &ServerError) -> NodeError {
    let defect = match error.details() {
        Some("type") => CounterDefect::OtherType,
        Some("beyond") => CounterDefect::Beyond,
        Some("expires") => CounterDefect::Expires,
        _ => CounterDefect::NoNumber,
    };
    NodeError::NotACounter {
        name: counter_name(cmd).into(),
        defect,
    }
}

/// Names the right that a fenced lock needs: the server says of no key whether it was denied.
fn no_right_to_counter(cmd: &Cmd, error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    let text = format!(
        "{details}: a fenced lock needs its key and its counter {} (grant the key pattern {}*)",
        counter_name(cmd),
        crate::Key::COUNTERS.escape_ascii(),
    );
    NodeError::Refused {
        code: error.code().into(),
        message: shorten(text).into(),
    }
}

/// Returns the name of the fencing counter in `EVAL source 2 key counter ..`, for people.
fn counter_name(cmd: &Cmd) -> String {
    let name = arguments(cmd).nth(4).unwrap_or_default();
    shorten(name.escape_ascii().to_string())
}

pub(super) fn refusal(error: &ServerError) -> NodeError {
    NodeError::Refused {
        code: shorten(error.code().to_owned()).into(),
        message: shorten(error.details().unwrap_or_default().to_owned()).into(),
    }
}

/// Reads how long a key had left, or that it is not ours.
fn read_remaining(text: &[u8]) -> Answer {
    if text == b"-" {
        return Ok(Vote::Denied);
    }
    match str::from_utf8(text).map(str::parse) {
        Ok(Ok(left)) => Ok(extended(left)),
        _ => Err(NodeError::Unexpected(
            "a time to live that is no number".into(),
        )),
    }
}

/// `left` is in milliseconds, or negative for a key without an end.
fn time_left(left: i64) -> Duration {
    u64::try_from(left).map_or(Duration::MAX, Duration::from_millis)
}

fn extended(left: i64) -> Vote {
    Vote::Extended {
        remaining: time_left(left),
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
