//! What all contestants without a lock library of their own say to Redis: the canonical commands.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use deadpool_redis::redis::{
    self, Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo, Value, aio::ConnectionLike,
    io::tcp::TcpSettings,
};

use crate::Result;

/// The default of this crate, for all.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// How many of five nodes must agree.
pub(super) const QUORUM: usize = 3;

pub(super) const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1]) \
     else return 0 end";

/// Returns a token that nobody else has. A counter will do where nobody is to be kept out.
pub(super) fn new_token() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 60);
    format!("{:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn set(key: &str, token: &str) -> Cmd {
    let mut cmd = redis::cmd("SET");
    cmd.arg(key).arg(token).arg("NX").arg("PX");
    cmd.arg(u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX));
    cmd
}

pub(super) fn compare_and_delete(hash: &str, key: &str, token: &str) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash).arg(1).arg(key).arg(token);
    cmd
}

/// Loads the release script, and returns the hash that it has on every node.
pub(super) async fn load_release(connection: &mut impl ConnectionLike) -> Result<String> {
    let mut cmd = redis::cmd("SCRIPT");
    cmd.arg("LOAD").arg(RELEASE);
    let hash = connection.req_packed_command(&cmd).await?;
    Ok(String::from_redis_value(hash)?)
}

/// Whether a node agreed.
pub(super) fn is_granted(reply: &redis::RedisResult<Value>) -> bool {
    matches!(reply, Ok(Value::Okay | Value::Int(1)))
}

/// Succeeds if a majority agreed, and else says what the nodes said.
pub(super) fn verdict(replies: &[redis::RedisResult<Value>]) -> Result<()> {
    if replies.iter().filter(|it| is_granted(it)).count() >= QUORUM {
        Ok(())
    } else {
        Err(format!("no quorum: {replies:?}").into())
    }
}

/// The address with Nagle's algorithm turned off, which the redis crate leaves on: the small
/// requests of a lock are what it delays.
pub(super) fn without_nagle(url: &str) -> Result<ConnectionInfo> {
    let info = url.into_connection_info()?;
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}
