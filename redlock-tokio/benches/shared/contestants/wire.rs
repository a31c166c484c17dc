//! The canonical commands, for all contestants without a lock library of their own.

use std::time::Duration;

use deadpool_redis::redis::{
    self, Client, Cmd, FromRedisValue, IntoConnectionInfo, RedisResult, Value, aio::ConnectionLike,
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

/// Returns a token that no other client has.
pub(super) fn new_token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

pub(super) fn set(key: &str, token: &str, ttl: Duration) -> Cmd {
    let mut cmd = redis::cmd("SET");
    cmd.arg(key).arg(token).arg("NX").arg("PX");
    cmd.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
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

/// The replies of all nodes to a command.
pub(crate) struct Replies(pub(super) Vec<RedisResult<Value>>);

impl Replies {
    /// Returns how many nodes agreed.
    pub(crate) fn granted(&self) -> usize {
        let is_granted = |reply: &&_| matches!(reply, Ok(Value::Okay | Value::Int(1)));
        self.0.iter().filter(is_granted).count()
    }

    /// Succeeds if a majority agreed, and else says what the nodes said.
    pub(super) fn verdict(&self) -> Result<()> {
        if self.granted() >= QUORUM {
            Ok(())
        } else {
            Err(format!("no quorum: {:?}", self.0).into())
        }
    }
}

/// Makes a client with Nagle's algorithm turned off, which the redis crate leaves on: the small
/// requests of a lock are what it delays.
pub(super) fn client(url: &str) -> Result<Client> {
    let info = url.into_connection_info()?;
    let settings = TcpSettings::default().set_nodelay(true);
    Ok(Client::open(info.set_tcp_settings(settings))?)
}
