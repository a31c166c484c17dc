use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_redis::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};

use crate::{Result, bed};

/// Refuses what comes too late, and counts what it accepts.
const WRITE: &str = "local now = redis.call('TIME') \
     if now[1] * 1000000 + now[2] >= tonumber(ARGV[2]) then return 0 end \
     redis.call('SET', KEYS[1], ARGV[1]) \
     redis.call('INCR', KEYS[2]) \
     return 1";

/// What the locks protect: a counter for each key.
#[derive(Clone)]
pub(super) struct Store(MultiplexedConnection);

/// When a write comes too late, by the wall clock, which a server knows too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Duration);

impl Store {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        // This process may be stopped for any time while it waits for an answer.
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

    /// Sets a counter, whatever it is now. Returns whether it was in time.
    pub(super) async fn write(&self, key: usize, value: u64, deadline: Deadline) -> Result<bool> {
        let mut eval = cmd("EVAL");
        eval.arg(WRITE).arg(2).arg(bed::name(key));
        eval.arg(bed::writes(key)).arg(value);
        eval.arg(u64::try_from(deadline.0.as_micros())?);
        Ok(eval.query_async(&mut self.0.clone()).await?)
    }
}

impl Deadline {
    /// Returns the time after what is left by then; no later, wherever in this the process is
    /// stopped.
    pub(super) fn after(left: impl FnOnce() -> Duration) -> Self {
        // Nobody's clock is before 1970; a write would come too late then.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.unwrap_or_default() + left())
    }
}
