// On GitHub the names in the README lead to docs.rs. Here they lead to the items of this version.
//! [`Redlock`]: crate::Redlock
//! [`RedlockBuilder`]: crate::RedlockBuilder
//! [`RedlockBuilder::max_waiters_total`]: crate::RedlockBuilder::max_waiters_total
//! [`Redlock::adopt`]: crate::Redlock::adopt
//! [`Redlock::embedded`]: crate::Redlock::embedded
//! [`Redlock::nodes`]: crate::Redlock::nodes
//! [`Redlock::ready`]: crate::Redlock::ready
//! [`Redlock::shutdown`]: crate::Redlock::shutdown
//! [`Redlock::try_lock`]: crate::Redlock::try_lock
//! [`Lock`]: crate::Lock
//! [`Lock::with`]: crate::Lock::with
//! [`LockGuard`]: crate::LockGuard
//! [`LockGuard::downgrade`]: crate::LockGuard::downgrade
//! [`LockGuard::into_ticket`]: crate::LockGuard::into_ticket
//! [`LockTicket`]: crate::LockTicket
//! [`AdoptError::Gone`]: crate::AdoptError::Gone
//! [`Hold::extend_for`]: crate::Hold::extend_for
//! [`RedlockRwLock`]: crate::RedlockRwLock
//! [`LockGuard::release_after`]: crate::LockGuard::release_after
//! [`Once`]: crate::Once
//! [`OnceOutcome::RunElsewhere`]: crate::OnceOutcome::RunElsewhere
//! [`Election`]: crate::Election
//! [`Candidate`]: crate::Candidate
//! [`Hold`]: crate::Hold
//! [`Hold::is_valid`]: crate::Hold::is_valid
//! [`Hold::lost`]: crate::Hold::lost
//! [`Hold::fencing_token`]: crate::Hold::fencing_token
//! [`LockOptions`]: crate::LockOptions
//! [`LockOptions::max_waiters_per_key`]: crate::LockOptions::max_waiters_per_key
//! [`RedlockBuilder::handover_for`]: crate::RedlockBuilder::handover_for
//! [`RedlockBuilder::poller_share`]: crate::RedlockBuilder::poller_share
//! [`LockError`]: crate::LockError
//! [`ExtendError`]: crate::ExtendError
//! [`MemoryNode`]: crate::MemoryNode
//! [`NodeStatus`]: crate::NodeStatus
//! [`NodeState`]: crate::NodeState
//! [`Observer`]: crate::Observer
//! [`FAULTS.md`]: crate::faults
//! [`DEPLOYMENTS.md`]: crate::deployments
//! [`OPERATIONS.md`]: crate::operations
//! [`MIGRATING.md`]: crate::migrating
//! [`METRICS.md`]: https://docs.rs/crate/redlock-tokio/latest/source/METRICS.md
//! [`CLI.md`]: https://docs.rs/crate/redlock-cli/latest/source/CLI.md
//! [`PERFORMANCE.md`]: https://docs.rs/crate/redlock-tokio/latest/source/PERFORMANCE.md
//! [`ARCHITECTURE.md`]: https://docs.rs/crate/redlock-tokio/latest/source/ARCHITECTURE.md
#![cfg_attr(
    all(unix, feature = "test-util"),
    doc = "[`test_util`]: crate::test_util",
    doc = "[`TestNodes`]: crate::test_util::TestNodes"
)]
//!
#![doc = include_str!("../README.md")]
// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A run must repeat itself if a test gives the seed and the clocks.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod acquisition;
mod builder;
mod client_name;
mod clock;
/// [`FAULTS.md`]: crate::faults
/// [`LockError::NoQuorum`]: crate::LockError::NoQuorum
/// [`LockError::Quarantined`]: crate::LockError::Quarantined
///
#[cfg(doc)]
#[doc = include_str!("../DEPLOYMENTS.md")]
pub mod deployments {}
mod election;
mod engine;
mod error;
#[cfg(doc)]
#[doc = include_str!("../FAULTS.md")]
pub mod faults {}
mod foreign;
mod guard;
mod hold;
mod inspection;
mod key;
mod lock;
mod log;
/// [`OPERATIONS.md`]: crate::operations
/// [dead]: crate::operations#a-dead-node
/// [lost]: crate::operations#why-a-lock-is-lost
///
#[cfg(all(doc, feature = "metrics"))]
#[doc = include_str!("../METRICS.md")]
pub mod metrics {}
#[cfg(doc)]
/// [`Attempts::nodes`]: crate::Attempts
/// [`DEPLOYMENTS.md`]: crate::deployments
/// [`Durability::AssumedForTests`]: crate::Durability::AssumedForTests
/// [`Durability::FsyncAlways`]: crate::Durability::FsyncAlways
/// [`LockError::Quarantined`]: crate::LockError::Quarantined
/// [`RedlockBuilder::handover_for`]: crate::RedlockBuilder::handover_for
/// [`LockOptions::max_hold`]: crate::LockOptions::max_hold
/// [`LockOptions::handover`]: crate::LockOptions::handover
/// [`LockOptions::no_renewal`]: crate::LockOptions::no_renewal
/// [`LockOptions::wait`]: crate::LockOptions::wait
/// [`Redlock::connect`]: crate::Redlock::connect
/// [`RedlockBuilder::pool`]: crate::RedlockBuilder::pool
/// [`RedlockBuilder::stream`]: crate::RedlockBuilder::stream
/// [`Redlock::embedded`]: crate::Redlock::embedded
/// [`Redlock::nodes`]: crate::Redlock::nodes
/// [`Redlock::ready`]: crate::Redlock::ready
/// [`RedlockBuilder::max_ttl`]: crate::RedlockBuilder::max_ttl
/// [`RedlockBuilder::prefix`]: crate::RedlockBuilder::prefix
/// [the line]: crate#waiting
/// [Promises]: crate#promises
///
#[doc = include_str!("../MIGRATING.md")]
pub mod migrating {}
#[doc(hidden)]
pub mod node;
/// [`DEPLOYMENTS.md`]: crate::deployments
/// [`FAULTS.md`]: crate::faults
/// [`CLI.md`]: https://docs.rs/crate/redlock-cli/latest/source/CLI.md
/// [`METRICS.md`]: https://docs.rs/crate/redlock-tokio/latest/source/METRICS.md
/// [`PERFORMANCE.md`]: https://docs.rs/crate/redlock-tokio/latest/source/PERFORMANCE.md
/// [rights]: crate::deployments#rights-and-keys
/// [`Hold::token`]: crate::Hold::token
/// [`LockOptions::label`]: crate::LockOptions::label
/// [`client_name`]: crate::RedlockBuilder::client_name
/// [`RedlockBuilder::log_keys`]: crate::RedlockBuilder::log_keys
///
#[cfg(doc)]
#[doc = include_str!("../OPERATIONS.md")]
pub mod operations {}
mod observer;
mod once;
mod options;
mod random;
mod readiness;
mod redlock;
mod rw_lock;
mod semaphore;
mod shown_time;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(all(test, redlock_shuttle))]
mod threads;

pub use acquisition::Acquisition;
pub use builder::{BuildError, RedlockBuilder};
pub use client_name::ClientNameError;
pub use clock::Clock;
pub use election::{Candidacy, Candidate, Election};
pub use engine::{
    lease_cell::{LocalHold, LocalLock, LockTicket},
    queue::QueueStatus,
};
pub use error::{
    Attempts, DowngradeError, ExtendError, LockError, RandomError, TakenBy, WithLockError,
};
pub use guard::{LockGuard, ReleaseAfterError, ReleaseOutcome, ReleaseReport, TicketError};
pub use hold::Hold;
pub use inspection::{InspectedNode, Inspection, Verdict};
pub use key::{Key, KeyError};
pub use lock::{Adopt, AdoptError, Lock, LockFuture};
pub use node::{
    Holder, KeyState, Occupant,
    durability::Durability,
    error::{CounterDefect, NodeError},
    memory::MemoryNode,
    redis::{Credentials, PoolMessages, SharedServerError, TlsOptions, UrlError},
    report::{NodeReport, NodeReports, Objection},
    server_info::{Role, ServerInfo},
    status::{NodeState, NodeStatus},
};
#[cfg(feature = "metrics")]
pub use observer::MetricsObserver;
pub use observer::{Event, LockChange, LockEvent, NodeChange, NodeEvent, Observer};
pub use once::{Once, OnceOutcome};
pub use options::{LockOptions, OptionsError, WaiterLimit};
pub use readiness::NotReady;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use redlock::Tables;
pub use redlock::{Redlock, Search, ShutdownReport, UnlockReport, UnlockedNode};
pub use redlock_core::{
    Check, Checks, Drift, FencingToken, KeepAliveError, LossReason, Permits, PermitsError,
    QuorumError, RetryScheduleError, RunId, Share, Timestamp, Token, Ttl, TtlError, ValidityError,
};
pub use rw_lock::RedlockRwLock;
pub use semaphore::RedlockSemaphore;
#[doc(hidden)]
pub use shown_time::ShownTime;

/// The crate whose pools [`RedlockBuilder::pool`] takes.
pub use deadpool_redis;
