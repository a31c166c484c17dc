//! The answers that a server's replies mean.

use std::{str::FromStr, time::Duration};

use deadpool_redis::redis::{ServerError, Value};
use redlock_core::FencingToken;

use super::part::Ask;
use crate::{
    Key,
    node::{
        Answer, Command, CounterDefect, Holder, NodeError, Vote,
        redis::{
            key_tag::KeyTag,
            script::{Reply, Script},
            server_error::{is_denied_key, refusal, shorten},
        },
    },
};

/// The reply of `PTTL` if the key does not exist.
const PTTL_NO_KEY: i64 = -2;

const NO_TIME: &str = "a time to live that is not a number";

/// Reads the reply of a script: as many answers as there are commands.
pub(super) fn scripted<'a>(
    script: &Script,
    reply: Value,
    commands: impl ExactSizeIterator<Item = &'a Command> + Clone,
    tag: &KeyTag,
) -> Vec<Answer> {
    let keys = commands.clone().flat_map(Command::keys);
    let count = keys.clone().count();
    let parts = |text: &[u8]| text.split(is_comma).count();
    match (script.reply, reply) {
        (Reply::Done, Value::Int(1)) => vec![Ok(Vote::Granted); commands.len()],
        (Reply::Done, Value::Int(0)) => vec![Ok(Vote::Denied); commands.len()],
        (Reply::Digits, Value::BulkString(digits)) if digits.len() == count => {
            for_commands(commands, digits.into_iter().map(release))
        }
        (Reply::TimesLeft, Value::BulkString(text)) if parts(&text) == count => {
            for_commands(commands, text.split(is_comma).map(extension))
        }
        (Reply::Counters, Value::BulkString(text)) if parts(&text) == count => {
            let answers = text.split(is_comma).zip(keys);
            for_commands(commands, answers.map(|(text, key)| fence(text, key, tag)))
        }
        (Reply::Slots, Value::BulkString(text)) if parts(&text) == count => {
            commands.map(|it| slots(&text, it)).collect()
        }
        (_, Value::ServerError(error)) => {
            let refused = |it| Err(refused(script, &error, it, tag));
            commands.map(refused).collect()
        }
        (_, reply) => vec![Err(failure(reply)); commands.len()],
    }
}

/// Reads the holder of each of this many keys. How long it has them comes later.
pub(super) fn holders(reply: Value, count: usize) -> Vec<Answer> {
    match reply {
        Value::Array(values) if values.len() == count => {
            let taken = values.iter().map(|value| Vote::Taken {
                remaining: Duration::ZERO,
                by: holder(value),
            });
            taken.map(Ok).collect()
        }
        reply => vec![Err(failure(reply)); count],
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
    earlier: Option<Answer>,
) -> Option<Answer> {
    match (ask, reply) {
        (Ask::Ignored, _) => earlier,
        (Ask::TimeLeft, reply) => Some(held(earlier, probe(reply))),
        (Ask::Probe, reply) if command.is_readers() => Some(held(earlier, probe(reply))),
        (Ask::Probe, reply) => Some(last_to_be_free(earlier, probe(reply))),
        (Ask::Value, reply) => value(reply),
        (Ask::Mark, reply) => marked(earlier, reply),
        (Ask::Set, Value::Okay) => Some(Ok(Vote::Granted)),
        (Ask::Set, Value::Nil) => Some(Ok(Vote::Denied)),
        (_, reply) => Some(Err(failure(reply))),
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

/// Reads the value of a key that a reader looks at: shared, or the token of the client that has it, for as long as the time to
/// live says that comes next.
fn value(reply: Value) -> Option<Answer> {
    let Value::Array(values) = reply else {
        return Some(Err(failure(reply)));
    };
    let by = values.first().and_then(holder)?;
    Some(Ok(if by.value() == Key::SHARED.as_bytes() {
        Vote::Free
    } else {
        Vote::Taken {
            remaining: Duration::ZERO,
            by: Some(by),
        }
    }))
}

/// Reads how long the key of that value lives.
fn held(earlier: Option<Answer>, left: Answer) -> Answer {
    match (earlier, left) {
        (Some(Ok(Vote::Taken { by, .. })), Ok(Vote::Taken { remaining, .. })) => {
            Ok(Vote::Taken { remaining, by })
        }
        (Some(Ok(Vote::Taken { .. })) | None, left) => left,
        (Some(earlier), _) => earlier,
    }
}

/// Reads how long the mark of a writer lives. It matters only where a reader would be let in. This
/// crate never sets a mark without an expiry.
fn marked(earlier: Option<Answer>, reply: Value) -> Option<Answer> {
    match (earlier, reply) {
        (Some(Ok(Vote::Free)), Value::Int(left)) if left > 0 => Some(Ok(Vote::Marked {
            remaining: time_left(left),
        })),
        (earlier, _) => earlier,
    }
}

fn holder(value: &Value) -> Option<Holder> {
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
fn slots(text: &[u8], command: &Command) -> Answer {
    let times = text.split(is_comma).map(number::<i64>);
    let Some(times) = times.collect::<Option<Vec<_>>>() else {
        return Err(NodeError::Unexpected(NO_TIME.into()));
    };
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
fn extension(text: &[u8]) -> Answer {
    if text == b"-" {
        return Ok(Vote::Denied);
    }
    let Some(left) = number(text) else {
        return Err(NodeError::Unexpected(NO_TIME.into()));
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

/// Returns what the error of a script means. Names the rights that it needs, since the server does not say which key it has
/// denied.
fn refused(script: &Script, error: &ServerError, command: &Command, tag: &KeyTag) -> NodeError {
    let details = error.details().unwrap_or_default();
    let (counters, readers, marks) = (Key::COUNTERS, Key::READERS, Key::MARKS);
    let message = if is_denied_key(error) && script.uses(counters) {
        let counter = shown_counter_name(command.key(), tag);
        format!(
            "{details}: a fenced lock needs its key and its counter {counter} (grant the key pattern {counters}*)"
        )
    } else if is_denied_key(error) && (script.uses(readers) || script.uses(marks)) {
        format!(
            "{details}: readers and writers need their key, and the key patterns {readers}* and {marks}*"
        )
    } else if error.code() == "WRONGTYPE" && script.uses(readers) {
        let name = tag.beside(readers, command.key().as_bytes());
        format!("{} is no set of readers", name.escape_ascii())
    } else {
        return refusal(error);
    };
    NodeError::Refused {
        code: error.code().into(),
        message: shorten(message).into(),
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
