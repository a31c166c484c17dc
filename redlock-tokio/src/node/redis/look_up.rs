//! The state of a key on a server, for people to see.

use std::{collections::BTreeMap, iter, time::Duration, vec};

use deadpool_redis::redis::{Pipeline, Value};
use redlock_core::Permits;

use super::{
    key_tag::KeyTag,
    lines,
    request::{failure, number, time_left},
    script::{self, Call},
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
    ask_values(pipeline, tag, &names.iter().map(|it| &it[..]));
    ask_sharing(pipeline, tag, key);
    for name in &names {
        ask_line(pipeline, tag, name);
    }
}

/// Asks for the same about many keys, without permits. A script looks at all of them.
pub(super) fn ask_locks(pipeline: &mut Pipeline, tag: &KeyTag, keys: &[Key]) {
    ask_values(pipeline, tag, &keys.iter().map(Key::as_bytes));
    for key in keys {
        ask_sharing(pipeline, tag, key);
        ask_line(pipeline, tag, key.as_bytes());
    }
}

/// Asks for values, and for the time, by which readers expire.
fn ask_values<'a>(
    pipeline: &mut Pipeline,
    tag: &KeyTag,
    names: &(impl Iterator<Item = &'a [u8]> + Clone),
) {
    pipeline.add_command(script::LOOK_UP.call(Call::InFull, tag, names));
    pipeline.cmd("TIME");
}

fn ask_sharing(pipeline: &mut Pipeline, tag: &KeyTag, key: &Key) {
    let readers = tag.beside(Key::READERS, key.as_bytes());
    let cmd = pipeline.cmd("ZRANGE").arg(readers).arg(0);
    cmd.arg(KeyState::MAX_READERS - 1).arg("WITHSCORES");
    let mark = tag.beside(Key::MARKS, key.as_bytes());
    pipeline.cmd("PTTL").arg(mark);
}

fn ask_line(pipeline: &mut Pipeline, tag: &KeyTag, name: &[u8]) {
    let line = tag.beside(Key::LINES, name);
    let cmd = pipeline.cmd("ZRANGE").arg(line).arg(0);
    cmd.arg(KeyState::MAX_WAITING - 1);
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
    let mut replies = Replies::read(replies)?;
    let mut state = replies.next(0);
    let permits = replies.values.into_iter();
    state.permits = permits.map(|(index, it)| (index - 1, it)).collect();
    for line in replies.others {
        add_line(&mut state, line);
    }
    Ok(state)
}

/// Reads the replies about so many keys.
pub(super) fn read_locks(count: usize, replies: Vec<Value>) -> Result<Vec<KeyState>, NodeError> {
    let mut replies = Replies::read(replies)?;
    Ok((0..count).map(|index| replies.next(index)).collect())
}

struct Replies {
    /// By the numbers of their names.
    values: BTreeMap<usize, Occupant>,
    now: Option<u64>,
    others: vec::IntoIter<Value>,
}

impl Replies {
    fn read(replies: Vec<Value>) -> Result<Self, NodeError> {
        let mut others = replies.into_iter();
        let values = match others.next().unwrap_or(Value::Nil) {
            Value::Array(values) => values.into_iter().map(occupant),
            reply => return Err(failure(reply)),
        };
        let values = values.collect::<Result<_, _>>()?;
        let now = others.next().as_ref().and_then(millis);
        Ok(Self {
            values,
            now,
            others,
        })
    }

    /// Returns the state of the next key, which is the name with this number.
    fn next(&mut self, index: usize) -> KeyState {
        let mut state = KeyState {
            lock: self.values.remove(&index),
            ..KeyState::default()
        };
        let mut next = || self.others.next().unwrap_or(Value::Nil);
        let (readers, mark, line) = (next(), next(), next());
        let is_shared = |it: &mut Occupant| {
            let value = it.holder.as_ref().map(Holder::value);
            value == Some(Key::SHARED.as_bytes())
        };
        if state.lock.take_if(is_shared).is_some()
            && let (Some(now), Value::Array(readers)) = (self.now, readers)
        {
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
        add_line(&mut state, line);
        state
    }
}

fn add_line(state: &mut KeyState, line: Value) {
    let Value::Array(line) = line else { return };
    let waiting = line.into_iter().filter_map(|it| match it {
        Value::BulkString(name) => Some(lines::client_name(&name)),
        _ => None,
    });
    let space = KeyState::MAX_WAITING - state.waiting.len();
    state.waiting.extend(waiting.take(space));
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
