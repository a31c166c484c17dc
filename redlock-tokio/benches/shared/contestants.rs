//! The contestants: this crate's lock, a rival, floors, and no lock at all.

mod in_process;
mod ours;
mod plain;
mod pool_get;
mod rslock;
mod sockets;
mod wire;

use std::fmt;

use serde::{Deserialize, Serialize};

#[allow(unused_imports, reason = "each benchmark uses a part of them")]
pub(crate) use self::{
    in_process::{InProcess, NoLock},
    ours::{Dropped, Newcomers, Ours},
    plain::Plain,
    pool_get::PoolGet,
    rslock::Rslock,
    sockets::Sockets,
};
use crate::Result;

/// Something that acquires and releases locks over Redis nodes.
pub(crate) trait Contestant: Clone + Send + Sync + Sized + 'static {
    /// The contestant's name in tables.
    const NAME: &'static str;

    /// The state between an acquisition and its release.
    type Held: Send + 'static;

    /// Connects to the nodes at these URLs.
    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Sets what to acquire, for those that know more than a lock.
    fn with_access(self, _access: Access) -> Self {
        self
    }

    /// Acquires the lock with this key, however long others hold it. Dropping the future gives up.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases the lock as the contestant's users do. Waits for the nodes if the contestant does.
    fn release(&self, key: &str, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// The way in which a client asks for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    Lock,
    /// Without a place in the line: it tries again as soon as it is refused.
    TryLock,
    /// One of so many permits.
    Permit(usize),
    Read,
    Write,
}

/// A contestant in a process of its own. Some are not written in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Name {
    Floor,
    Rslock,
    Ours,
    Newcomers,
    InProcess,
    NoLock,
    NodeRedlock,
    RedisSemaphore,
    RedisPy,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::TryLock => f.write_str("`try_lock` in a loop"),
            Self::Permit(1) => f.write_str("1 permit"),
            Self::Permit(permits) => write!(f, "{permits} permits"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floor => "polling floor",
            Self::Rslock => Rslock::NAME,
            Self::Ours => Ours::NAME,
            Self::Newcomers => Newcomers::NAME,
            Self::InProcess => InProcess::NAME,
            Self::NoLock => NoLock::NAME,
            Self::NodeRedlock => "node-redlock 5",
            Self::RedisSemaphore => "redis-semaphore 5",
            Self::RedisPy => "redis-py 5",
        })
    }
}
