#![doc = include_str!("../README.md")]

mod builder;
mod clock;
mod error;
mod guard;
mod hold;
mod keeper;
mod key;
mod lane;
mod lease_cell;
mod lock;
mod node;
mod options;
mod redlock;
mod shared;
#[cfg(all(unix, feature = "test-util"))]
pub mod test_util;

pub use builder::{BuildError, RedlockBuilder};
pub use clock::Clock;
pub use error::{
    Attempts, ExtendError, LockError, NodeReport, NodeReports, Objection, WithLockError,
};
pub use guard::{LockGuard, ReleaseOutcome, ReleaseReport};
pub use hold::Hold;
pub use key::{Key, KeyError};
pub use lock::{Lock, LockFuture};
pub use node::{Answer, Command, MemoryNode, Node, NodeError, RedisNode, Session, UrlError, Vote};
pub use options::{LockOptions, OptionsError};
pub use redlock::{Redlock, ShutdownReport};
pub use redlock_core::{Drift, FencingToken, LossReason, Operation, Timestamp, Token, Ttl};
