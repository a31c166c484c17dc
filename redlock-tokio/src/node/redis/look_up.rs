//! The state of a key on a server, for people to see.

use std::{iter, time::Duration};

use deadpool_redis::redis::{Pipeline, Value};
use redlock_core::Permits;

use super::{
    key_tag::KeyTag,
    lines,
    request::{failure, number, time_left},
    script,
};
use crate::{
    Key,
    key::SlotKeys,
    node::{FoundKeys, Holder, KeyState, NodeError, Occupant},
};

/// Asks for everything at once. All that a plain lock has is asked for by one script, which no other client interrupts.
pub(super) fn ask(pipeline: &mut Pipeline, tag: &KeyTag, key: &Key) {
    let slots = (0..Permits::MAX).map(|slot| SlotKeys::name(key.as_bytes(), slot));
    let names: Vec<_> = iter::once(key.as_bytes().to_vec()).chain(slots).collect();
    let cmd = pipeline.cmd("EVAL").arg(script::LOOK_UP).arg(names.len());
    for name in &names {
        cmd.arg(tag.on(name));
    }
    pipeline.cmd("TIME");
    let readers = tag.beside(Key::READERS, key.as_bytes());
    let cmd = pipeline.cmd("ZRANGE").arg(readers).arg(0);
    cmd.arg(KeyState::MAX_READERS - 1).arg("WITHSCORES");
    let mark = tag.beside(Key::MARKS, key.as_bytes());
    pipeline.cmd("PTTL").arg(mark);
    for line in &names {
        let line = tag.beside(Key::LINES, line);
        let cmd = pipeline.cmd("ZRANGE").arg(line).arg(0);
        cmd.arg(KeyState::MAX_WAITING - 1);
    }
}

/// How many keys a server looks at in one step of a search, during which it does nothing else. With 300,000 keys, a thousand
/// took 1 ms on a busy machine, and 20 ms if all of them were locks.
const STEP: usize = 100;

/// Asks for some of the keys that begin with this prefix and have a single value, as each lock does.
pub(super) fn search(pipeline: &mut Pipeline, tag: &KeyTag, prefix: &[u8], cursor: u64) {
    let mut pattern = Vec::new();
    for byte in tag.on(prefix).to_bytes().iter() {
        if b"*?[]\\".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    let cmd = pipeline.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern);
    cmd.arg("COUNT").arg(STEP).arg("TYPE").arg("string");
}

/// Reads the cursor and the names of a step.
pub(super) fn found(tag: &KeyTag, mut replies: Vec<Value>) -> Result<FoundKeys, NodeError> {
    let reply = replies.pop().unwrap_or(Value::Nil);
    let Value::Array(parts) = &reply else {
        return Err(failure(reply));
    };
    let [Value::BulkString(cursor), Value::Array(names)] = &parts[..] else {
        return Err(failure(reply));
    };
    let Some(next) = number::<u64>(cursor) else {
        return Err(failure(reply));
    };
    let keys = names.iter().filter_map(|name| match name {
        Value::BulkString(name) => tag.strip(name).map(Into::into),
        _ => None,
    });
    Ok(FoundKeys {
        keys: keys.collect(),
        next: (next != 0).then_some(next),
    })
}

/// Reads the replies. A client without the rights of readers or of lines sees none.
pub(super) fn read(replies: Vec<Value>) -> Result<KeyState, NodeError> {
    let mut replies = replies.into_iter();
    let mut next = || replies.next().unwrap_or(Value::Nil);
    let mut state = KeyState::default();
    let mut is_shared = false;
    let found = match next() {
        Value::Array(found) => found,
        reply => return Err(failure(reply)),
    };
    for entry in found {
        let (index, occupant) = occupant(entry)?;
        let value = occupant.holder.as_ref().map(Holder::value);
        match index.checked_sub(1) {
            None if value == Some(Key::SHARED.as_bytes()) => is_shared = true,
            None => state.lock = Some(occupant),
            Some(slot) => _ = state.permits.insert(slot, occupant),
        }
    }
    let (time, readers, mark) = (next(), next(), next());
    if let (true, Some(now), Value::Array(readers)) = (is_shared, millis(&time), readers) {
        // In pairs over RESP3, and as a flat list over RESP2.
        let flat = readers.into_iter().flat_map(|it| match it {
            Value::Array(pair) => pair,
            single => vec![single],
        });
        let flat: Vec<_> = flat.collect();
        let readers = flat.chunks_exact(2).filter_map(|it| reader(it, now));
        state.readers = readers.collect();
    }
    if let Value::Int(left @ 1..) = mark {
        state.waiting_writer = Some(time_left(left));
    }
    for line in replies {
        let Value::Array(line) = line else { continue };
        let waiting = line.into_iter().filter_map(|it| match it {
            Value::BulkString(name) => Some(lines::client_name(&name)),
            _ => None,
        });
        state.waiting.extend(waiting);
    }
    state.waiting.truncate(KeyState::MAX_WAITING);
    Ok(state)
}

/// Reads the number of a name, from 1 on, its value, and the time that it has left.
fn occupant(entry: Value) -> Result<(usize, Occupant), NodeError> {
    let Value::Array(entry) = entry else {
        return Err(failure(entry));
    };
    let [Value::Int(number), value, Value::Int(left)] = &entry[..] else {
        return Err(failure(Value::Array(entry)));
    };
    let holder = match value {
        Value::BulkString(value) => Some(Holder::new(&value[..])),
        _ => None,
    };
    let remaining = (*left >= 0).then(|| time_left(*left));
    let index = usize::try_from(*number - 1).unwrap_or_default();
    Ok((index, Occupant::new(holder, remaining)))
}

/// Reads a member of a set of readers and its score, which is when it expires.
fn reader(entry: &[Value], now: u64) -> Option<Occupant> {
    let [Value::BulkString(value), score] = entry else {
        return None;
    };
    let ends = match score {
        Value::Double(score) => *score as u64,
        Value::BulkString(score) => number(score)?,
        _ => return None,
    };
    let remaining = Duration::from_millis(ends.checked_sub(now).filter(|left| *left > 0)?);
    Some(Occupant::new(
        Some(Holder::new(&value[..])),
        Some(remaining),
    ))
}

fn millis(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else {
        return None;
    };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = &parts[..] else {
        return None;
    };
    Some(number::<u64>(seconds)? * 1000 + number::<u64>(micros)? / 1000)
}
