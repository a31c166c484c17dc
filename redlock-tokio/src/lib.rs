#![doc = include_str!("../README.md")]

mod builder;
mod clock;
mod error;
mod guard;
mod hold;
mod keeper;
mod key;
mod key_set;
mod lane;
mod lease_cell;
mod lock;
mod node;
mod node_status;
mod options;
mod queue;
mod readiness;
mod redlock;
mod shared;
#[cfg(all(unix, feature = "test-util"))]
pub mod test_util;
mod turn_table;
mod vetting;
mod wall_clock;
mod warning;

pub use builder::{BuildError, RedlockBuilder};
pub use clock::Clock;
pub use error::{
    Attempts, ExtendError, LockError, NodeReport, NodeReports, Objection, RandomError,
    WithLockError,
};
pub use guard::{LockGuard, ReleaseOutcome, ReleaseReport};
pub use hold::Hold;
pub use key::{Key, KeyError};
pub use lock::{Lock, LockFuture};
pub use node::{
    Answer, Command, CounterDefect, Freed, MemoryNode, Node, NodeError, RedisNode, Server,
    ServerInfo, Session, UrlError, Vote,
};
pub use node_status::{NodeState, NodeStatus};
pub use options::{LockOptions, OptionsError};
pub use readiness::NotReady;
pub use redlock::{QueueStatus, Redlock, ShutdownReport};
pub use redlock_core::{
    Drift, FencingToken, LossReason, Operation, Replication, ReplicationId, RunId, Timestamp,
    Token, Ttl, TtlError,
};

/// The crate whose pools [`RedlockBuilder::pools`] and [`RedisNode::from_pool`] take.
pub use deadpool_redis;
