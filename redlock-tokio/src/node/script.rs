use std::sync::LazyLock;

use deadpool_redis::redis;

/// A Lua script and the hash under which a server that has seen it knows it.
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

/// Deletes the key if its value is the token. This is the script of the Redlock page ("Correct
/// implementation with a single instance"), so a foreign client's release means the same.
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then \
           return redis.call('DEL', KEYS[1]) \
         else \
           return 0 \
         end",
    )
});

/// Lets the key live for the ttl from now if its value is the token. It never shortens a life, so
/// that an extension which arrives late, after a longer one, does no harm.
pub(super) static EXTEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then \
           if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then \
             redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
           end \
           return 1 \
         else \
           return 0 \
         end",
    )
});

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
