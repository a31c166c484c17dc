#![doc = include_str!("../README.md")]

mod builder;
mod clock;
mod engine;
mod error;
mod guard;
mod hold;
mod key;
mod lock;
mod node;
mod options;
mod readiness;
mod redlock;
mod sync;
#[cfg(all(unix, feature = "test-util"))]
pub mod test_util;
mod whole_seconds;

pub use builder::{BuildError, RedlockBuilder};
pub use clock::Clock;
pub use error::{Attempts, ExtendError, LockError, RandomError, WithLockError};
pub use guard::{LockGuard, ReleaseOutcome, ReleaseReport};
pub use hold::Hold;
pub use key::{Key, KeyError};
pub use lock::{Lock, LockFuture};
pub use node::{
    Answer, Command, CounterDefect, FreedNotifier, MemoryNode, Node, NodeError, NodeReport,
    NodeReports, NodeState, NodeStatus, Objection, RedisNode, Server, ServerInfo, Session,
    UrlError, Vote,
};
pub use options::{LockOptions, OptionsError};
pub use readiness::NotReady;
pub use redlock::{QueueStatus, Redlock, ShutdownReport};
pub use redlock_core::{
    Drift, FencingToken, LossReason, Operation, Replication, ReplicationId, RunId, Timestamp,
    Token, Ttl, TtlError,
};

/// The crate whose pools [`RedlockBuilder::pools`] and [`RedisNode::from_pool`] take.
pub use deadpool_redis;
