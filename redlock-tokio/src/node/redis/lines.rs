//! The line of a key on a server: a sorted set of the processes that wait, and a channel on which each is called. Beside it is
//! another one that says when each of them has asked last, in seconds of the server's clock. The name of a process is its
//! number in 16 digits, and the name of its client.

use std::sync::Arc;

use deadpool_redis::redis::{Cmd, Pipeline, Value};

use super::{key_tag::KeyTag, request::failure};
use crate::{
    Key,
    client_name::ClientName,
    node::{LineAction, LineAnswer, LineRequest, Member, NodeError},
};

/// How many digits the number of a member has. The scripts cut off the name of the client, which follows.
const DIGITS: usize = 16;

/// Removes those that lose their places and calls the first `active`, then takes a place at the end unless there is
/// one. Returns the place and the first of the line, or 0 if a place is wanted behind others only, and there are none.
const JOIN: &str = "local line, seen, member, active = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[3]) \
    if ARGV[7] == '1' and redis.call('ZCARD', line) == 0 then \
      return 0 \
    end \
    local now = redis.call('TIME')[1] \
    redis.call('ZADD', seen, now, member) \
    local gone = redis.call('ZRANGE', seen, '-inf', now - ARGV[4] / 1000, 'BYSCORE') \
    local first = redis.call('ZRANGE', line, 0, 0)[1] \
    if first and string.sub(first, 1, 16) == ARGV[2] then \
      table.insert(gone, first) \
    end \
    for _, it in ipairs(gone) do \
      redis.call('ZREM', line, it) \
      redis.call('ZREM', seen, it) \
    end \
    if #gone > 0 then \
      for _, called in ipairs(redis.call('ZRANGE', line, 0, active - 1)) do \
        redis.pcall('PUBLISH', ARGV[5] .. string.sub(called, 1, 16), ARGV[6]) \
      end \
      first = redis.call('ZRANGE', line, 0, 0)[1] \
    end \
    local place = redis.call('ZRANK', line, member) \
    if not place then \
      local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0 \
      redis.call('ZADD', line, last + 1, member) \
      place = redis.call('ZCARD', line) - 1 \
    end \
    redis.call('PEXPIRE', line, ARGV[4]) \
    redis.call('PEXPIRE', seen, ARGV[4]) \
    return {place, first or member}";

/// Gives up the place, and calls the first, and the last of the first `active`, if they have moved up because of that.
const LEAVE: &str = "local line, active = KEYS[1], tonumber(ARGV[2]) \
    local place = redis.call('ZRANK', line, ARGV[1]) \
    redis.call('ZREM', KEYS[2], ARGV[1]) \
    if place then \
      redis.call('ZREM', line, ARGV[1]) \
      for rank = 0, active - 1, math.max(active - 1, 1) do \
        local called = redis.call('ZRANGE', line, rank, rank)[1] \
        if called and place <= rank then \
          redis.pcall('PUBLISH', ARGV[3] .. string.sub(called, 1, 16), ARGV[4]) \
        end \
      end \
    end \
    return 1";

pub(super) fn channel(member: Member) -> String {
    format!("{}{}", Key::LINES, name(member))
}

pub(super) fn encode(tag: &KeyTag, requests: &[LineRequest]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(requests.len() + 1);
    for LineRequest {
        key,
        action,
        client_name,
    } in requests
    {
        let line = tag.beside(Key::LINES, key.as_bytes());
        let seen = tag.beside(Key::SEEN_IN_LINES, key.as_bytes());
        let script = |source| {
            let mut cmd = Cmd::new();
            cmd.arg("EVAL").arg(source).arg(2).arg(&line).arg(&seen);
            cmd
        };
        let called_by = tag.on(key.as_bytes());
        let client_name = client_name.as_deref().unwrap_or_default();
        let full = |member| format!("{}{client_name}", name(member));
        let cmd = match *action {
            LineAction::Join {
                member,
                active,
                evicts,
                only_behind_others,
            } => {
                let mut cmd = script(JOIN);
                cmd.arg(full(member));
                cmd.arg(evicts.map(name).unwrap_or_default()).arg(active);
                let lifetime = LineRequest::LIFETIME.as_millis() as u64;
                cmd.arg(lifetime).arg(Key::LINES).arg(called_by);
                cmd.arg(u8::from(only_behind_others));
                cmd
            }
            LineAction::Leave { member, active } => {
                let mut cmd = script(LEAVE);
                cmd.arg(full(member)).arg(active).arg(Key::LINES);
                cmd.arg(called_by);
                cmd
            }
            LineAction::Count => {
                let mut cmd = Cmd::new();
                cmd.arg("ZCARD").arg(&line);
                cmd
            }
        };
        pipeline.add_command(cmd);
    }
    pipeline
}

pub(super) fn read(
    requests: &[LineRequest],
    replies: Vec<Value>,
    is_called: bool,
) -> Result<Vec<LineAnswer>, NodeError> {
    let answers = requests.iter().zip(replies);
    answers
        .map(|(request, reply)| match (request.action, reply) {
            (LineAction::Join { .. }, Value::Array(standing)) => match &standing[..] {
                [Value::Int(ahead), Value::BulkString(first)] => Ok(LineAnswer::Standing {
                    ahead: u32::try_from(*ahead).unwrap_or(u32::MAX),
                    first: member(first),
                    is_called,
                }),
                _ => Err(failure(Value::Array(standing))),
            },
            (LineAction::Leave { .. }, Value::Int(_)) => Ok(LineAnswer::Left),
            (
                LineAction::Count
                | LineAction::Join {
                    only_behind_others: true,
                    ..
                },
                Value::Int(waiting),
            ) => Ok(LineAnswer::Waiting(
                u32::try_from(waiting).unwrap_or(u32::MAX),
            )),
            (_, reply) => Err(failure(reply)),
        })
        .collect()
}

/// Returns the number of a member as its name begins.
fn name(member: Member) -> String {
    format!("{:0width$x}", member.0, width = DIGITS)
}

/// Reads the name of a member. Another program may have written anything there, which is nobody then.
fn member(name: &[u8]) -> Member {
    let number = name.get(..DIGITS).and_then(|it| str::from_utf8(it).ok());
    let number = number.and_then(|it| u64::from_str_radix(it, 16).ok());
    Member(number.unwrap_or_default())
}

pub(super) fn client_name(name: &[u8]) -> Option<Arc<str>> {
    let text = str::from_utf8(name.get(DIGITS..)?).ok()?;
    // Another program may have written anything there.
    ClientName::new(text).ok()?.shared()
}
