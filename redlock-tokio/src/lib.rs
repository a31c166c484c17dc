//! A distributed lock over independent Redis (or Valkey) masters, for tokio.
//!
//! While a process holds a [`LockGuard`], no other process of the fleet is in the critical section. The guard renews the lock
//! in the background and releases it on drop. The algorithm is [Redlock]. `redlock-core` makes its decisions, and this crate
//! does the I/O over `deadpool-redis`.
//!
//! ```no_run
//! use redlock_tokio::Redlock;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::builder()
//!     .nodes("redis://a,redis://b,redis://c")
//!     .prefix("shop:lock:") // keeps locks apart from other keys there
//!     .build()
//!     .await?;
//!
//! let guard = redlock.lock("order:42").await?; // waits for at most 5 s
//! println!("valid for {:.1?}, and renewed", guard.remaining());
//! drop(guard); // releases the lock in the background
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] has three pages: [a first lock](guide::first_lock), [jobs and leaders](guide::jobs_and_leaders), and
//! [on call](guide::on_call). `redlock-axum` and `redlock-tower` put locks on routes and services.
//!
//! # What there is
//!
//! - [`Redlock`]: [`connect`](Redlock::connect) or [`builder`](Redlock::builder), [`embedded`](Redlock::embedded) without
//!   servers; [`lock`](Redlock::lock) waits, [`try_lock`](Redlock::try_lock) makes one attempt, and
//!   [`lock_all`](Redlock::lock_all) takes several keys or none.
//! - [`Lock`]: the options of one lock, and work under it, [`Lock::with`]. [`LockOptions`] has all of them.
//! - [`LockGuard`]: a lock that is held. [`Hold`]: a view of it, for the code under it.
//! - [`RedlockSemaphore`] and [`RedlockRwLock`]: permits, and readers and writers.
//! - [`Once`] and [`Election`]: a job that one host runs, and one leader of the fleet.
//! - [`LockError`] and [`ExtendError`]: contended, no quorum or too slow, with the answer of each node.
//! - [`Redlock::inspect`] shows who holds a lock, [`Redlock::force_unlock`] frees it, and [`Redlock::held`] lists the locks of
//!   this process. [`Redlock::ready`] and [`Redlock::nodes`] are for start-up and health checks. An [`Observer`] is told what
//!   happens to locks and nodes.
//!
//! A lock without contention costs one round trip to the majority. A lock is not reentrant: a task that holds a lock and
//! requests it again waits until its `wait` is over.
//!
//! # Promises
//!
//! There is at most one holder *by its own validity clock*, as long as all of this is true: fewer than a majority of nodes
//! are faulty; clocks differ less in rate than the drift allowance (a hundredth and 2 ms); no server's clock steps; no node
//! forgets a key that it has confirmed, except by a restart; all processes use the same nodes and the same
//! [`max_ttl`](RedlockBuilder::max_ttl).
//!
//! [`Hold::is_valid`] is false from the end of validity on, and [`Hold::lost`] wakes a millisecond or two after it, within the
//! drift allowance. Neither asks a node: if another client deletes the key, a majority of nodes reports that to a holder of
//! more than a third of a ttl, and otherwise the next renewal notices it. A release touches only its own key.
//!
//! A node that restarted may have forgotten locks, and a replica that was promoted may lack some. Such a node has no vote
//! until `max_ttl` is over. A node that evicts keys, or that is flushed, is not recognised: run the nodes with
//! `maxmemory-policy noeviction`. `FAULTS.md` in the repository lists each fault, its consequence, and the test that shows it.
//!
//! Two things are not promised. One is exclusion while a process is paused for longer than the ttl: check
//! [`Hold::is_valid`] before the step that counts, or use a [fencing token](LockOptions::fenced). The other is an order
//! beside clients that stand in no line (other libraries, readers, and requests with a limit of attempts) or in another one
//! (requests for several keys, and processes that are not notified).
//!
//! # Features
//!
//! - `tls-rustls`: `rediss://` URLs, with rustls and the system's root certificates, or those of [`TlsOptions`]. It builds
//!   `ring`, which needs a C compiler.
//! - `serde`: a [`LockTicket`] can be serialized.
//! - `metrics`: `MetricsObserver`, which counts locks and nodes by the `metrics` crate.
//! - `test-util`: `test_util::TestNodes`, which cause faults in memory.
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

// Labels on docs.rs say which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A run must repeat itself if a test gives the seed and the clocks.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod acquisition;
mod builder;
mod client_name;
mod clock;
mod election;
mod engine;
mod error;
mod foreign;
mod guard;
#[cfg(any(doc, doctest))]
pub mod guide;
mod hold;
mod inspection;
mod key;
mod lock;
mod log;
#[doc(hidden)]
pub mod node;
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

/// The programs in the pages of the repository.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../DEPLOYMENTS.md")]
    mod deployments {}
    #[doc = include_str!("../MIGRATING.md")]
    mod migrating {}
    #[doc = include_str!("../OPERATIONS.md")]
    mod operations {}
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../METRICS.md")]
    mod metrics {}
}

use errors::*;
use events::*;

/// The errors of single operations, and the parts of errors. [`LockError`], [`ExtendError`], [`BuildError`] and [`NodeError`]
/// are in the root.
pub mod errors {
    pub use crate::client_name::ClientNameError;
    pub use crate::error::{Attempts, DowngradeError, RandomError, TakenBy, WithLockError};
    pub use crate::guard::{ReleaseAfterError, TicketError};
    pub use crate::key::KeyError;
    pub use crate::lock::AdoptError;
    pub use crate::node::error::CounterDefect;
    pub use crate::node::redis::UrlError;
    pub use crate::node::report::{NodeReport, NodeReports, Objection};
    pub use crate::options::OptionsError;
    pub use crate::readiness::NotReady;
    pub use redlock_core::{
        KeepAliveError, PermitsError, QuorumError, RetryScheduleError, TtlError, ValidityError,
    };
}
/// What an [`Observer`] is told.
pub mod events {
    pub use crate::observer::{Event, LockChange, LockEvent, NodeChange, NodeEvent};
}
pub use acquisition::Acquisition;
pub use builder::{BuildError, RedlockBuilder};
pub use clock::Clock;
pub use election::{Candidacy, Candidate, Election};
pub use engine::{
    queue::QueueStatus,
    requests::{LocalHold, LocalLock, LockTicket},
};
pub use error::{ExtendError, LockError};
pub use guard::{LockGuard, ReleaseOutcome, ReleaseReport};
pub use hold::Hold;
pub use inspection::{InspectedNode, Inspection, Verdict};
pub use key::Key;
pub use lock::{Adopt, Lock, LockFuture};
pub use node::{
    Holder, KeyState, Occupant,
    durability::Durability,
    error::NodeError,
    memory::MemoryNode,
    redis::{Credentials, PoolMessages, TlsOptions},
    server_info::{Role, ServerInfo},
    status::{NodeState, NodeStatus},
};
#[cfg(feature = "metrics")]
pub use observer::MetricsObserver;
pub use observer::Observer;
pub use once::{Once, OnceOutcome};
pub use options::{LockOptions, WaiterLimit};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use redlock::Tables;
pub use redlock::{Redlock, Search, ShutdownReport, UnlockReport, UnlockedNode};
pub use redlock_core::{
    Check, Checks, Drift, FencingToken, LossReason, Permits, RunId, Share, Timestamp, Token, Ttl,
};
pub use rw_lock::RedlockRwLock;
pub use semaphore::RedlockSemaphore;
#[doc(hidden)]
pub use shown_time::ShownTime;

/// The crate whose pools [`RedlockBuilder::pool`] takes.
pub use deadpool_redis;
