use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_redis::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};

use redlock_tokio::FencingToken;

use crate::{Result, bed};

/// Refuses late writes, and counts accepted ones.
pub(crate) const WRITE: &str = "local now = redis.call('TIME') \
     if now[1] * 1000000 + now[2] >= tonumber(ARGV[2]) then return 0 end \
     redis.call('SET', KEYS[1], ARGV[1]) \
     redis.call('INCR', KEYS[2]) \
     return 1";

/// Remembers a fencing token, unless an equal or larger one was there.
const CLAIM: &str = "local largest = redis.call('GET', KEYS[1]) \
     if largest and tonumber(largest) >= tonumber(ARGV[1]) then return 0 end \
     redis.call('SET', KEYS[1], ARGV[1]) \
     return 1";

/// Refuses writes if another token than the writer's was remembered since, and counts accepted ones.
const WRITE_FENCED: &str = "if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end \
     redis.call('SET', KEYS[1], ARGV[1]) \
     redis.call('INCR', KEYS[2]) \
     return 1";

/// The protected data: a counter for each key.
#[derive(Clone)]
pub(super) struct Store(MultiplexedConnection);

/// The time from which a write is too late, by the wall clock, which the server shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Duration);

impl Store {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        // This process may be stopped for any time while it waits for an answer, so there is no timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self(connection.await?))
    }

    pub(super) async fn read(&self, key: usize) -> Result<u64> {
        let mut get = cmd("GET");
        get.arg(bed::name(key));
        let value: Option<u64> = get.query_async(&mut self.0.clone()).await?;
        Ok(value.unwrap_or(0))
    }

    /// Sets a counter. Returns whether the write was in time.
    pub(super) async fn write(&self, key: usize, value: u64, deadline: Deadline) -> Result<bool> {
        let keys = [bed::name(key), bed::writes(key)];
        let deadline = u64::try_from(deadline.0.as_micros())?;
        self.eval(WRITE, &keys, &[value, deadline]).await
    }

    /// Shows the token of a hold, before the counter is read. Returns whether it is larger than all before.
    pub(super) async fn claim(&self, key: usize, fence: FencingToken) -> Result<bool> {
        self.eval(CLAIM, &[bed::fence(key)], &[fence.get()]).await
    }

    /// Sets a counter. Returns whether no larger token was shown since the claim.
    pub(super) async fn write_fenced(
        &self,
        key: usize,
        value: u64,
        fence: FencingToken,
    ) -> Result<bool> {
        let keys = [bed::name(key), bed::writes(key), bed::fence(key)];
        self.eval(WRITE_FENCED, &keys, &[value, fence.get()]).await
    }

    async fn eval(&self, script: &str, keys: &[String], arguments: &[u64]) -> Result<bool> {
        let mut eval = cmd("EVAL");
        eval.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        Ok(eval.query_async(&mut self.0.clone()).await?)
    }
}

impl Deadline {
    /// Returns the deadline when `left` has passed. A stop of the process within this call does not make the
    /// deadline later.
    pub(super) fn after(left: impl FnOnce() -> Duration) -> Self {
        // A clock before 1970 would make every write late.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.unwrap_or_default() + left())
    }
}
