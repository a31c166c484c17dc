//! The scripts of readers and writers. See [`Access`](redlock_core::Access).
//!
//! While readers have a key, its value is `redlock:shared`. A sorted set beside it has their tokens, with the time at which
//! each expires as its score, in milliseconds of the server's clock. Both live for as long as the last reader. A set without
//! such a key is left over, and counts for nothing.

use super::{Argument, Name, RELEASE, Reply, Script};
use crate::Key;

const READERS: Name = Name::Beside(Key::READERS);
const MARK: Name = Name::Beside(Key::MARKS);

/// Reads the value of the key. `MGET` finds nothing in a key of another type.
macro_rules! look {
    () => {
        "local key, readers, token = KEYS[1], KEYS[2], ARGV[1] \
         local value = redis.call('MGET', key)[1] "
    };
}

/// Reads the clock.
macro_rules! look_at_the_clock {
    () => {
        "local time = redis.call('TIME') \
         local now = time[1] * 1000 + math.floor(time[2] / 1000) "
    };
}

/// Reads when our token expires. Ends with the server's error, before anything has changed, if the name has something
/// other than a sorted set.
macro_rules! find_own {
    () => {
        "local score = redis.pcall('ZSCORE', readers, token) \
         if type(score) == 'table' then \
           return score \
         end \
         score = score and tonumber(score) "
    };
}

/// Lets the key and the set live for as long as the last reader. `ends` must be a future time, as text.
macro_rules! live_with_the_last {
    () => {
        "local ends = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2] \
         redis.call('PEXPIREAT', key, ends) \
         redis.call('PEXPIREAT', readers, ends) "
    };
}

/// Adds a reader for a ttl, or raises its expiry. Returns 1 if it is in, and 0 if it is not: another client has the key for
/// itself, or a writer has marked it and this reader neither insists nor is in already. This crate never sets a
/// mark without an expiry, and such a mark keeps nobody out.
///
/// The first command that changes something may be refused for lack of memory. A server never stops a script after that.
pub(in crate::node::redis) static JOIN: Script = Script::new(
    &[Name::Key, READERS, MARK],
    &[Argument::Value, Argument::Ttl, Argument::Insists],
    Reply::Done,
    concat!(
        look!(),
        look_at_the_clock!(),
        "local is_shared = value == 'redlock:shared' \
         if not is_shared and redis.call('EXISTS', key) == 1 then \
           return 0 \
         end ",
        find_own!(),
        "local is_in = is_shared and score and score > now \
         if ARGV[3] == '0' and not is_in and redis.call('PTTL', KEYS[3]) > 0 then \
           return 0 \
         end \
         local ends = now + ARGV[2] \
         if is_in and score > ends then \
           ends = score \
         end \
         if not is_shared then \
           redis.call('SET', key, 'redlock:shared', 'PX', ARGV[2]) \
           redis.call('DEL', readers) \
         end \
         redis.call('ZADD', readers, string.format('%.0f', ends), token) \
         redis.call('ZREMRANGEBYSCORE', readers, '-inf', now) ",
        live_with_the_last!(),
        "return 1",
    ),
);

/// Lets a reader live for its ttl from now, or makes the holder of an exclusive token the first reader, and deletes its mark.
/// Returns the milliseconds that it had left, or `-` if it is not there or has expired. Never shortens a life.
///
/// The first command that changes something removes what has expired, which needs no memory. So a server that has none
/// left still extends its readers.
pub(in crate::node::redis) static EXTEND_READER: Script = Script::new(
    &[Name::Key, READERS, MARK],
    &[Argument::Value, Argument::Ttl, Argument::Mark],
    Reply::TimesLeft,
    concat!(
        look!(),
        look_at_the_clock!(),
        find_own!(),
        "if value == token then \
           local left = redis.call('PTTL', key) \
           if redis.call('MGET', KEYS[3])[1] == ARGV[3] then \
             redis.call('DEL', KEYS[3]) \
           end \
           redis.call('DEL', readers) \
           score = left < 0 and now or now + left \
           redis.call('ZADD', readers, string.format('%.0f', math.max(score, now + ARGV[2])), token) \
           redis.call('SET', key, 'redlock:shared', 'PX', ARGV[2]) ",
        live_with_the_last!(),
        "  return tostring(left) \
         end \
         if value ~= 'redlock:shared' or not score or score <= now then \
           return '-' \
         end \
         redis.call('ZREMRANGEBYSCORE', readers, '-inf', now) \
         if score < now + ARGV[2] then \
           redis.call('ZADD', readers, string.format('%.0f', now + ARGV[2]), token) \
         end ",
        live_with_the_last!(),
        "return tostring(score - now)",
    ),
);

/// Removes a reader, or deletes a key that has its token alone. Returns 1 if it was there. The others keep their lives.
///
/// A key with its token alone needs no right that only readers need: the client may have too few for a downgrade.
pub(in crate::node::redis) static RELEASE_READER: Script = Script::new(
    &[Name::Key, READERS],
    &[Argument::Value],
    Reply::Done,
    concat!(
        look!(),
        "if value == token then \
           redis.call('DEL', key) \
           return 1 \
         end \
         if value ~= 'redlock:shared' then \
           return 0 \
         end ",
        look_at_the_clock!(),
        find_own!(),
        "if not score then \
           return 0 \
         end \
         redis.call('ZREM', readers, token) \
         redis.call('ZREMRANGEBYSCORE', readers, '-inf', now) \
         if redis.call('EXISTS', readers) == 0 then \
           redis.call('DEL', key) \
         elseif score > tonumber(redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]) then ",
        live_with_the_last!(),
        "end \
         return 1",
    ),
)
.or_plain(&RELEASE);

/// Releases a writer's key, and deletes its mark. Returns 1 if it had the key.
///
/// A writer that has given up touches a key that readers share, so that the server notifies the readers that the mark kept
/// out. The key then lives for a millisecond more. A key without an end is not touched: it would expire at once.
pub(in crate::node::redis) static RELEASE_WRITER: Script = Script::new(
    &[Name::Key, MARK],
    &[Argument::Value, Argument::Mark],
    Reply::Done,
    "local found = redis.call('MGET', KEYS[1], KEYS[2]) \
     if found[2] == ARGV[2] then \
       redis.call('DEL', KEYS[2]) \
       local left = redis.call('PTTL', KEYS[1]) \
       if found[1] == 'redlock:shared' and left >= 0 then \
         redis.call('PEXPIRE', KEYS[1], left + 1) \
       end \
     end \
     if found[1] ~= ARGV[1] then \
       return 0 \
     end \
     redis.call('DEL', KEYS[1]) \
     return 1",
)
.or_plain(&RELEASE);
