//! The answers that a server's replies mean.

use std::{str::FromStr, time::Duration};

use deadpool_redis::redis::{ServerError, Value};
use redlock_core::FencingToken;

use super::{
    part::{Ask, Scripted, Shared},
    sharing,
};
use crate::{
    Key,
    node::{
        Answer, Command, CounterDefect, Holder, NodeError, Vote,
        redis::{
            key_tag::KeyTag,
            server_error::{is_denied_key, refusal, shorten},
        },
    },
};

/// The reply of `PTTL` if the key does not exist.
const PTTL_NO_KEY: i64 = -2;

/// Reads the reply for commands that share a script: as many answers as there are commands.
pub(super) fn shared<'a>(
    shared: Shared,
    reply: Value,
    commands: impl ExactSizeIterator<Item = &'a Command> + Clone,
    tag: &KeyTag,
) -> Vec<Answer> {
    let count = commands.len();
    let keys: usize = commands.clone().map(Command::key_count).sum();
    match (shared, reply) {
        (Shared::Releases, Value::BulkString(digits)) if digits.len() == keys => {
            let answers = digits.into_iter().map(release);
            for_commands(commands, answers)
        }
        (Shared::Extensions, Value::BulkString(text)) if text.split(is_comma).count() == keys => {
            for_commands(commands, text.split(is_comma).map(extension))
        }
        (Shared::Fences, Value::BulkString(text)) if text.split(is_comma).count() == keys => {
            let answers = text.split(is_comma);
            let answers = answers.zip(commands.clone().flat_map(Command::keys));
            for_commands(commands, answers.map(|(text, key)| fence(text, key, tag)))
        }
        // How long each of them is taken comes later.
        (Shared::Holders, Value::Array(values)) if values.len() == count => {
            let taken = values.iter().map(|value| Vote::Taken {
                remaining: Duration::ZERO,
                by: holder(value),
            });
            taken.map(Ok).collect()
        }
        (Shared::Fences, Value::ServerError(error)) if is_denied_key(&error) => commands
            .map(|command| Err(no_right_to_counter(command.key(), tag, &error)))
            .collect(),
        (_, reply) => vec![Err(failure(reply)); count],
    }
}

/// Joins the answers for the keys of each command. Denied if one of them is: the node lacks a key.
fn for_commands<'a>(
    commands: impl Iterator<Item = &'a Command>,
    mut answers: impl Iterator<Item = Answer>,
) -> Vec<Answer> {
    let join = |vote, answer| match (vote, answer) {
        (denied @ Ok(Vote::Denied), _) | (_, denied @ Ok(Vote::Denied)) => denied,
        (error @ Err(_), _) | (_, error @ Err(_)) => error,
        (Ok(Vote::Extended { remaining: one }), Ok(Vote::Extended { remaining: other })) => {
            let remaining = one.min(other);
            Ok(Vote::Extended { remaining })
        }
        (Ok(Vote::Outbid { counter: one }), Ok(Vote::Outbid { counter: other })) => {
            let counter = one.max(other);
            Ok(Vote::Outbid { counter })
        }
        (Ok(Vote::Granted), vote) | (vote, _) => vote,
    };
    let joined = commands.map(|it| {
        let own = answers.by_ref().take(it.key_count());
        own.fold(Ok(Vote::Granted), join)
    });
    joined.collect()
}

/// Reads the reply for one command. `earlier` is what another part of the same command was answered.
/// Returns nothing if the reply alone is no answer.
pub(super) fn single(
    ask: Ask,
    reply: Value,
    command: &Command,
    tag: &KeyTag,
    earlier: Option<Answer>,
) -> Option<Answer> {
    match (ask, reply) {
        (Ask::Ignored, _) => earlier,
        (Ask::TimeLeft, reply) => Some(sharing::probe(earlier, probe(reply))),
        (Ask::Probe, reply) if command.is_readers() => Some(sharing::probe(earlier, probe(reply))),
        (Ask::Probe, reply) => Some(last_to_be_free(earlier, probe(reply))),
        (Ask::Value, reply) => sharing::value(reply),
        (Ask::Mark, reply) => sharing::marked(earlier, reply),
        (Ask::Scripted(Scripted::Sharing(sharing), _), reply) => {
            Some(sharing.read(reply, command, tag))
        }
        (Ask::Scripted(Scripted::Slots, _), reply) => Some(slots(reply, command)),
        (ask, reply) => Some(vote(ask, reply)),
    }
}

/// Reads a reply in the words of this way to ask, and no others.
fn vote(ask: Ask, reply: Value) -> Answer {
    match (ask, reply) {
        (Ask::Set, Value::Okay) => Ok(Vote::Granted),
        (Ask::Set, Value::Nil) | (Ask::InFull, Value::Int(0)) => Ok(Vote::Denied),
        (Ask::InFull, Value::Int(1)) => Ok(Vote::Granted),
        (_, reply) => Err(failure(reply)),
    }
}

/// Reads what a script says of the fencing counter of one key.
fn fence(text: &[u8], key: &Key, tag: &KeyTag) -> Answer {
    let defect = match text {
        b"1" => return Ok(Vote::Granted),
        b"-" => return Ok(Vote::Denied),
        b"type" => CounterDefect::OtherType,
        b"text" => CounterDefect::NoNumber,
        b"beyond" => CounterDefect::Beyond,
        text => return counter(text),
    };
    let name = shown_counter_name(key, tag).into();
    Err(NodeError::NotACounter { name, defect })
}

fn probe(reply: Value) -> Answer {
    match reply {
        Value::Int(PTTL_NO_KEY) => Ok(Vote::Free),
        Value::Int(left) => Ok(Vote::Taken {
            remaining: time_left(left),
            by: None,
        }),
        reply => Err(failure(reply)),
    }
}

pub(super) fn holder(value: &Value) -> Option<Holder> {
    match value {
        Value::BulkString(value) => Some(Holder::new(&value[..])),
        _ => None,
    }
}

/// Joins the answers for several keys, of which the last one to be free counts.
fn last_to_be_free(earlier: Option<Answer>, answer: Answer) -> Answer {
    match (earlier, answer) {
        (
            Some(Ok(Vote::Taken { remaining, .. })),
            Ok(Vote::Taken {
                remaining: other, ..
            }),
        ) => Ok(Vote::Taken {
            remaining: remaining.max(other),
            by: None,
        }),
        (Some(Ok(Vote::Free)) | None, answer) => answer,
        (Some(earlier), _) => earlier,
    }
}

/// Reads the times that slots of a semaphore have left.
fn slots(reply: Value, command: &Command) -> Answer {
    let Value::BulkString(text) = &reply else {
        return Err(failure(reply));
    };
    let times = text.split(is_comma).map(number::<i64>);
    let times: Option<Vec<_>> = times.collect();
    let times = times.filter(|times| times.len() == command.key_count());
    let times = times.ok_or_else(|| failure(reply))?;
    let left = |left| (left != PTTL_NO_KEY).then(|| time_left(left));
    let slots = command.probed_slots().map(|(slot, _)| slot);
    Ok(Vote::slots(slots.zip(times.into_iter().map(left))))
}

fn release(digit: u8) -> Answer {
    match digit {
        b'1' => Ok(Vote::Granted),
        b'0' => Ok(Vote::Denied),
        _ => Err(NodeError::Unexpected("a vote that is not 0 or 1".into())),
    }
}

/// Reads the time that a key had left; `-` if another client has the key, or it is gone.
pub(super) fn extension(text: &[u8]) -> Answer {
    if text == b"-" {
        return Ok(Vote::Denied);
    }
    let Some(left) = number(text) else {
        let error = "a time to live that is not a number";
        return Err(NodeError::Unexpected(error.into()));
    };
    let remaining = time_left(left);
    Ok(Vote::Extended { remaining })
}

fn counter(text: &[u8]) -> Answer {
    let Some(counter) = number(text) else {
        let error = "a fencing counter that is not a number";
        return Err(NodeError::Unexpected(error.into()));
    };
    let counter = FencingToken::new(counter);
    Ok(Vote::Outbid { counter })
}

pub(in crate::node::redis) fn number<N: FromStr>(text: &[u8]) -> Option<N> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// `left` is in milliseconds, or negative for a key without an end.
pub(in crate::node::redis) fn time_left(left: i64) -> Duration {
    u64::try_from(left).map_or(Duration::MAX, Duration::from_millis)
}

/// Returns the error of a reply that is not a vote.
pub(in crate::node::redis) fn failure(reply: Value) -> NodeError {
    match reply {
        Value::ServerError(error) => refusal(&error),
        other => NodeError::Unexpected(shorten(format!("{other:?}")).into()),
    }
}

/// Names the right that a fenced lock needs. The server does not say which key it has denied.
fn no_right_to_counter(key: &Key, tag: &KeyTag, error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    let text = format!(
        "{details}: a fenced lock needs its key and its counter {} (grant the key pattern {}*)",
        shown_counter_name(key, tag),
        Key::COUNTERS,
    );
    NodeError::Refused {
        code: error.code().into(),
        message: shorten(text).into(),
    }
}

/// Returns the name of the key's fencing counter, for people.
fn shown_counter_name(key: &Key, tag: &KeyTag) -> String {
    let name = tag.counter_of(key.as_bytes());
    shorten(name.escape_ascii().to_string())
}

fn is_comma(byte: &u8) -> bool {
    *byte == b','
}
