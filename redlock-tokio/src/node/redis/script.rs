pub(super) mod line;
pub(super) mod readers;

use std::sync::OnceLock;

use deadpool_redis::redis;

/// A Lua script, and the hash by which a server that has loaded it finds it.
pub(super) struct Script {
    source: &'static str,
    hash: OnceLock<String>,
}

/// Returns for each key that exists its number, its value and the milliseconds that it has left, as `PTTL` does. A key of
/// another type has no value.
pub(super) const LOOK_UP: &str = "local found = {} \
    for i = 1, #KEYS do \
      local left = redis.call('PTTL', KEYS[i]) \
      if left ~= -2 then \
        found[#found + 1] = {i, redis.call('MGET', KEYS[i])[1], left} \
      end \
    end \
    return found";

/// Returns for each slot of a semaphore the milliseconds that it has left, as `PTTL` does, separated by commas.
pub(super) static SLOTS: Script = Script::new(
    "local left = {} \
     for i = 1, #KEYS do \
       left[i] = redis.call('PTTL', KEYS[i]) \
     end \
     return table.concat(left, ',')",
);

/// Deletes each key whose value is its token. Returns a digit for each key, 1 if it was deleted: a text is
/// cheaper to make and to read than an array. Mostly all keys have their tokens, and then no tables are needed. For each
/// key this is the script of the Redlock page ("Correct implementation with a single instance"). `MGET` finds nothing in
/// a key of another type, where `GET` would end the script.
///
/// Like [`EXTEND`] and [`FENCE`], it knows keys and no locks: a lock of several keys repeats its token for each key.
pub(super) static RELEASE: Script = Script::new(
    "local found = redis.call('MGET', unpack(KEYS)) \
     local other = 1 \
     while other <= #KEYS and found[other] == ARGV[other] do \
       other = other + 1 \
     end \
     if other > #KEYS then \
       redis.call('DEL', unpack(KEYS)) \
       return string.rep('1', #KEYS) \
     end \
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
);

/// Lets each key live for its ttl from now if its value is its token. Returns for each key the milliseconds that it had
/// left (-1 for a key without an end, as `PTTL` does), or `-` if another client has it or it is gone, separated by
/// commas. The script never shortens a life, so an extension that arrives late, after a longer one, does no harm. Except if the
/// ttl is negative: then the key lives for no longer than that.
///
/// If a lock has lost some of its keys here, the others are extended all the same. The lock counts the answer as a
/// denial. Those keys live no longer than the keys on other nodes, and the release, which goes to all nodes, deletes
/// them.
pub(super) static EXTEND: Script = Script::new(
    "local found = redis.call('MGET', unpack(KEYS)) \
     local answers = {} \
     for i = 1, #KEYS do \
       if found[i] == ARGV[i] then \
         local ttl = tonumber(ARGV[#KEYS + i]) \
         local left = redis.call('PTTL', KEYS[i]) \
         if left < ttl or ttl < 0 then \
           redis.call('PEXPIRE', KEYS[i], math.abs(ttl)) \
         end \
         answers[i] = left \
       else \
         answers[i] = '-' \
       end \
     end \
     return table.concat(answers, ',')",
);

/// Raises the fencing counter of each key whose value is its token. The counters come after as many keys, the fences
/// after as many tokens, and the lifetime of the counters last. Returns for each key `1` if its counter was raised, `-` if
/// the key is not ours, the counter if it is not smaller, or what is wrong with the counter, separated by commas. `MGET`
/// finds nothing in a counter of another type, which `NX` leaves alone. `2^53 - 1` is the last number that Lua
/// distinguishes from its neighbours.
///
/// A lock that has lost some of its keys here raises the counters of the others. That does no harm: they belong to keys
/// that it has, so nobody else can raise them now, and counters only grow.
pub(super) static FENCE: Script = Script::new(
    "local n = #KEYS / 2 \
     local lifetime = ARGV[2 * n + 1] \
     local found = redis.call('MGET', unpack(KEYS)) \
     local answers = {} \
     for i = 1, n do \
       local answer = '1' \
       local fence, name, counter = ARGV[n + i], KEYS[n + i], found[n + i] \
       if found[i] ~= ARGV[i] then \
         answer = '-' \
       elseif not counter then \
         if not redis.call('SET', name, fence, 'NX', 'PX', lifetime) then \
           answer = 'type' \
         end \
       elseif counter == '' or string.find(counter, '%D') then \
         answer = 'text' \
       elseif #counter > 16 or tonumber(counter) > 9007199254740991 then \
         answer = 'beyond' \
       elseif tonumber(counter) >= tonumber(fence) then \
         answer = counter \
       else \
         redis.call('SET', name, fence, 'PX', lifetime) \
       end \
       answers[i] = answer \
     end \
     return table.concat(answers, ',')",
);

/// Sets all keys, unless one of them exists with another value. Returns 1 if it did. Keys with the token itself
/// are set again, which repairs a node that has lost some of the keys. node-redlock sets the same values for several
/// resources, so the two exclude each other.
pub(super) static ACQUIRE_ALL: Script = Script::new(
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
);

/// Sets the key to another value, with a new ttl, if it has the giver's. Returns 1 if it had. `MGET` finds nothing in a key
/// of another type.
pub(super) static ADOPT: Script = Script::new(
    "if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then \
       return 0 \
     end \
     redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) \
     return 1",
);

/// Returns the scripts that are called by hash. A new connection loads them.
pub(super) fn all() -> [&'static Script; 9] {
    [
        &RELEASE,
        &EXTEND,
        &FENCE,
        &SLOTS,
        &readers::JOIN,
        &readers::EXTEND_READER,
        &readers::RELEASE_READER,
        &readers::RELEASE_WRITER,
        &line::LINE,
    ]
}

impl Script {
    const fn new(source: &'static str) -> Self {
        let hash = OnceLock::new();
        Self { source, hash }
    }

    pub(super) fn source(&self) -> &'static str {
        self.source
    }

    pub(super) fn hash(&self) -> &str {
        let hash = || redis::Script::new(self.source).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }
}
