use std::sync::LazyLock;

use deadpool_redis::redis;

/// A Lua script, and the hash by which a server that has loaded it finds it.
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

/// Deletes each key whose value is its token. Returns a digit for each key, 1 if it was deleted: a text is
/// cheaper to make and to read than an array. For each key this is the script of the Redlock page ("Correct
/// implementation with a single instance"). `MGET` finds nothing in a key of another type, where `GET` would
/// end the script.
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('MGET', unpack(KEYS)) \
         local ours, answers = {}, {} \
         for i = 1, #KEYS do \
           if found[i] == ARGV[i] then \
             ours[#ours + 1] = KEYS[i] \
             answers[i] = '1' \
           else \
             answers[i] = '0' \
           end \
         end \
         if #ours > 0 then \
           redis.call('DEL', unpack(ours)) \
         end \
         return table.concat(answers)",
    )
});

/// Lets each key live for its ttl from now if its value is its token. Returns for each key the milliseconds
/// that it had left (-1 for a key without an end, as `PTTL` does), or `-` if it is not ours, separated by
/// commas. The script never shortens a life, so an extension that arrives late, after a longer one, does no
/// harm.
pub(super) static EXTEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('MGET', unpack(KEYS)) \
         local answers = {} \
         for i = 1, #KEYS do \
           if found[i] == ARGV[i] then \
             local ttl = ARGV[#KEYS + i] \
             local left = redis.call('PTTL', KEYS[i]) \
             if left < tonumber(ttl) then \
               redis.call('PEXPIRE', KEYS[i], ttl) \
             end \
             answers[i] = left \
           else \
             answers[i] = '-' \
           end \
         end \
         return table.concat(answers, ',')",
    )
});

/// Reads the fencing counter. If the key is not a counter, the script ends with an error of ours before it
/// changes anything: the key has another type, is not a number, exceeds the largest token, or expires.
/// `2^53 - 1` is the last number that Lua distinguishes from its neighbours.
macro_rules! read_counter {
    ($key:literal) => {
        concat!(
            "local counter = redis.pcall('GET', ",
            $key,
            ") \
             if type(counter) == 'table' then \
               if string.sub(counter.err, 1, 9) == 'WRONGTYPE' then \
                 return redis.error_reply('NOCOUNTER type') \
               end \
               return counter \
             end \
             if counter then \
               if not string.match(counter, '^%d+$') then \
                 return redis.error_reply('NOCOUNTER text') \
               end \
               if #counter > 16 or tonumber(counter) > 9007199254740991 then \
                 return redis.error_reply('NOCOUNTER beyond') \
               end \
               if redis.call('PTTL', ",
            $key,
            ") >= 0 then \
                 return redis.error_reply('NOCOUNTER expires') \
               end \
             end "
        )
    };
}

/// Sets the key if it does not exist, and raises the fencing counter if it is smaller than the fence. Returns
/// nil if the key exists, 1 if the counter was raised, and otherwise the counter as a text.
pub(super) static ACQUIRE_FENCED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        read_counter!("KEYS[2]"),
        "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
           return false \
         end \
         if counter and tonumber(counter) >= tonumber(ARGV[3]) then \
           return counter \
         end \
         redis.call('SET', KEYS[2], ARGV[3]) \
         return 1",
    ))
});

/// Raises the fencing counter in the same way, if the key's value is the token.
pub(super) static FENCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then \
           return false \
         end ",
        read_counter!("KEYS[2]"),
        "if counter and tonumber(counter) >= tonumber(ARGV[2]) then \
           return counter \
         end \
         redis.call('SET', KEYS[2], ARGV[2]) \
         return 1",
    ))
});

/// Sets all keys unless one of them exists with another value. Keys with the token itself are set again, which
/// repairs a node that has lost some of the keys. node-redlock sets the same values for several resources, so
/// the two exclude each other.
pub(super) static ACQUIRE_ALL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('MGET', unpack(KEYS)) \
         local ours = 0 \
         for i = 1, #KEYS do \
           if found[i] == ARGV[1] then \
             ours = ours + 1 \
           end \
         end \
         if redis.call('EXISTS', unpack(KEYS)) > ours then \
           return 0 \
         end \
         for _, key in ipairs(KEYS) do \
           redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) \
         end \
         return 1",
    )
});

/// Extends all keys if all have the token. Returns the least time that one of them had left, or `-`.
pub(super) static EXTEND_ALL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('MGET', unpack(KEYS)) \
         for i = 1, #KEYS do \
           if found[i] ~= ARGV[1] then \
             return '-' \
           end \
         end \
         local least \
         for _, key in ipairs(KEYS) do \
           local left = redis.call('PTTL', key) \
           if left < tonumber(ARGV[2]) then \
             redis.call('PEXPIRE', key, ARGV[2]) \
           end \
           if not least or left < least then \
             least = left \
           end \
         end \
         return tostring(least)",
    )
});

/// Deletes the keys that have the token. Returns 1 if all of them had.
pub(super) static RELEASE_ALL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('MGET', unpack(KEYS)) \
         local ours = 0 \
         for i = 1, #KEYS do \
           if found[i] == ARGV[1] then \
             redis.call('DEL', KEYS[i]) \
             ours = ours + 1 \
           end \
         end \
         return ours == #KEYS and 1 or 0",
    )
});

/// Returns the scripts that are called by hash. A new connection loads them.
pub(super) fn all() -> [&'static Script; 3] {
    [&*RELEASE, &*EXTEND, &*FENCE]
}

impl Script {
    fn new(source: &'static str) -> Self {
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }

    pub(super) fn source(&self) -> &'static str {
        self.source
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}
