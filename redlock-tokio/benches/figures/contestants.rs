//! The contestants: this crate's lock, a rival, floors, and no lock at all.

mod in_process;
mod ours;
mod plain;
mod rslock;

use std::{fmt, time::Duration};

use deadpool_redis::redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    in_process::{InProcess, NoLock},
    ours::{Dropped, LEADERSHIP, Newcomers, Ours},
    plain::Plain,
    rslock::Rslock,
};
use crate::Result;

/// The default of this crate, for all.
const TTL: Duration = Duration::from_secs(10);

/// Something that acquires and releases locks over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// The state between an acquisition and its release.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs. Those that know nothing but a lock ignore what to acquire.
    fn connect(urls: &[String], access: Access) -> impl Future<Output = Result<Self>> + Send;

    /// Acquires the lock with this key, however long others hold it. Dropping the future gives up.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases the lock as the contestant's users do. Waits for the nodes if the contestant does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// The way in which a client asks for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    Lock,
    /// Of a client that no server notifies.
    OverResp2,
    /// Without a place in the line: it tries again as soon as it is refused.
    TryLock,
    /// One of so many permits.
    Permit(usize),
    Read,
    Write,
    /// With a short time to live, like the candidates of an election.
    Lead,
    /// Two keys at once: tasks with keys of their own want one of them.
    Both,
}

/// A contestant in a process of its own. Some are not written in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Name {
    Plain,
    Rslock,
    Ours,
    Dropped,
    Newcomers,
    InProcess,
    NoLock,
    NodeRedlock,
    RedisSemaphore,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::OverResp2 => f.write_str("lock over RESP2"),
            Self::TryLock => f.write_str("`try_lock` in a loop"),
            Self::Permit(1) => f.write_str("1 permit"),
            Self::Permit(permits) => write!(f, "{permits} permits"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Lead => f.write_str("lead"),
            Self::Both => f.write_str("both keys"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "redis-rs",
            Self::Rslock => "rslock 0.10",
            Self::Ours => "redlock-tokio",
            Self::Dropped => "redlock-tokio, guard dropped",
            Self::Newcomers => "redlock-tokio, a new client for each lock",
            Self::InProcess => "tokio::sync",
            Self::NoLock => "no lock",
            Self::NodeRedlock => "node-redlock 5",
            Self::RedisSemaphore => "redis-semaphore 5",
        })
    }
}

/// Makes a client with Nagle's algorithm turned off, which the redis crate leaves on: the small
/// requests of a lock are what it delays.
fn client(url: &str) -> Result<Client> {
    let info = url.into_connection_info()?;
    let settings = TcpSettings::default().set_nodelay(true);
    Ok(Client::open(info.set_tcp_settings(settings))?)
}
