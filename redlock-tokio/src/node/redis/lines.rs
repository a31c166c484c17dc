//! Requests about the line of a key, and the channel on which a process is called. The [script] has the rules.

use std::{iter, sync::Arc};

use deadpool_redis::redis::{Cmd, Pipeline, Value};

use super::{
    key_tag::KeyTag,
    script::{Call, line::LINE},
};
use crate::{
    Key,
    client_name::ClientName,
    node::{LineAction, LineAnswer, LineRequest, Member, Standing},
};

#[cfg(doc)]
use super::script::line as script;

/// How many digits the number of a member has. A sign follows, which says whether it waits for several keys, or only keeps
/// others waiting, and the name of its client.
const DIGITS: usize = 16;

/// How a session takes part in lines.
#[derive(Clone, Copy)]
pub(super) struct Listening {
    /// Whether it is called.
    pub(super) is_called: bool,
    /// Whether the server can count all sessions that hear a call.
    pub(super) is_counted: bool,
}

pub(super) fn channel(member: Member) -> String {
    format!("{}{}", Key::CALLS, name(member))
}

pub(super) fn encode(
    tag: &KeyTag,
    requests: &[LineRequest],
    listening: Listening,
    by: Call,
) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(requests.len() + 1);
    for request in requests {
        pipeline.add_command(encode_one(tag, request, listening, by));
    }
    pipeline
}

fn encode_one(tag: &KeyTag, request: &LineRequest, listening: Listening, by: Call) -> Cmd {
    let key = request.key.as_bytes();
    let (action, member, active) = match request.action {
        LineAction::Join { member, active, .. } | LineAction::Keep { member, active } => {
            ("join", Some(member), active)
        }
        LineAction::Leave { member, active, .. } | LineAction::LetGo { member, active } => {
            ("leave", Some(member), active)
        }
        LineAction::Call { active } => ("call", None, active),
        LineAction::Beat { member, leaves_all } => {
            let action = if leaves_all { "leave all" } else { "beat" };
            (action, Some(member), 0)
        }
        LineAction::Count => ("count", None, 0),
    };
    let number = member.map(name).unwrap_or_default();
    let client_name = request.client_name.as_deref().unwrap_or_default();
    let band = 2 * u8::from(request.of_several) + u8::from(!listening.is_called);
    let (sign, band) = match request.action {
        LineAction::Keep { .. } | LineAction::LetGo { .. } => ('!', 0),
        _ => (if request.of_several { '+' } else { '-' }, band),
    };
    let mut cmd = LINE.call(by, tag, &iter::once(key));
    cmd.arg(action).arg(&number);
    cmd.arg(LineRequest::LIFETIME.as_millis() as u64);
    cmd.arg(Key::CALLS)
        .arg(format!("{number}{sign}{client_name}"));
    cmd.arg(tag.on(key));
    cmd.arg(active).arg(band);
    let (number, only_behind_others) = match request.action {
        LineAction::Join {
            number,
            only_behind_others,
            ..
        } => (number, only_behind_others),
        LineAction::Keep { .. } => (Some(0), false),
        LineAction::Leave { is_taken, .. } => {
            cmd.arg(u8::from(is_taken));
            return cmd;
        }
        _ => return cmd,
    };
    let number = number.map(|it| it.to_string()).unwrap_or_default();
    cmd.arg(number).arg(u8::from(listening.is_counted));
    cmd.arg(u8::from(only_behind_others));
    cmd
}

/// Returns whether the server has lost the script, so that it has carried out nothing.
pub(super) fn must_send_script(replies: &[Value]) -> bool {
    let is_unknown =
        |it: &Value| matches!(it, Value::ServerError(error) if error.code() == "NOSCRIPT");
    !replies.is_empty() && replies.iter().all(is_unknown)
}

/// Reads the replies. One that the server refuses, such as that about a name of another type, spoils no other.
pub(super) fn read(
    requests: &[LineRequest],
    replies: Vec<Value>,
    is_called: bool,
) -> Vec<LineAnswer> {
    let answers = requests.iter().zip(replies);
    let answers = answers.map(|(request, reply)| read_one(request.action, &reply, is_called));
    answers
        .map(|it| it.unwrap_or(LineAnswer::Refused))
        .collect()
}

fn read_one(action: LineAction, reply: &Value, is_called: bool) -> Option<LineAnswer> {
    let numbers = match reply {
        Value::Array(numbers) => numbers,
        Value::Int(number) => match action {
            LineAction::Join { .. } | LineAction::Count => {
                return Some(LineAnswer::Waiting(saturating(*number)));
            }
            LineAction::Keep { .. } | LineAction::Beat { .. } => return None,
            _ => return Some(LineAnswer::Done),
        },
        _ => return None,
    };
    match (action, &numbers[..]) {
        (LineAction::Join { .. }, &[Value::Int(ahead), Value::Int(number), Value::Int(life)]) => {
            Some(LineAnswer::Standing(Standing {
                ahead: saturating(ahead),
                number: number.max(0) as u64,
                life: life as u64,
                is_called,
            }))
        }
        (LineAction::Beat { .. }, &[Value::Int(life), Value::Int(has_more)]) => {
            Some(LineAnswer::Alive {
                life: (life > 0).then_some(life as u64),
                has_more: has_more > 0,
            })
        }
        _ => None,
    }
}

fn saturating(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the number of a member as its name begins.
fn name(member: Member) -> String {
    format!("{:0width$x}", member.0, width = DIGITS)
}

pub(super) fn client_name(name: &[u8]) -> Option<Arc<str>> {
    let text = str::from_utf8(name.get(DIGITS + 1..)?).ok()?;
    // Another program may have written anything there.
    ClientName::new(text).ok()?.shared()
}
