use std::{fmt, time::Duration};

use redlock_core::{FencingToken, LossReason, Share};
use thiserror::Error;

use crate::{
    Holder, KeyError, NodeReports, OptionsError, WaiterLimit, random,
    shown_time::{ShownTime, WholeSeconds},
};

/// Why a lock could not be acquired.
///
/// After each of these errors the lock is not held, and keys that were set on nodes are released in the background.
///
/// ```
/// # use redlock_tokio::{LockError, Redlock};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// # let _other = redlock.lock("order:42").await?;
/// match redlock.lock("order:42").wait(Duration::from_millis(100)).await {
///     Ok(guard) => drop(guard),
///     Err(LockError::Contended(_)) => println!("try again later"),
///     Err(error) => return Err(error.into()), // the message names the nodes
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another client held the lock until the waiting time was over, or several clients tried at once and none got a
    /// majority. [`Attempts::count`] is 0 if a task of this process held the lock or waited for it.
    #[error("{what} is taken: {whom} ({0})", what = taken(.0), whom = taken_by(.0))]
    Contended(Attempts),
    /// Too few nodes are available to form a majority: the others are down, silent, or refuse this client.
    /// [`Redlock::nodes`](crate::Redlock::nodes) and [`Attempts::nodes`] say why.
    #[error(
        "no quorum: {needed} of {total} nodes must agree ({0})",
        needed = .0.votes_needed,
        total = .0.nodes_total
    )]
    NoQuorum(Attempts),
    /// The nodes work, but this process asks for more locks than they can grant in time, so it does not ask them any
    /// more. Fewer keys in one request help, and fewer requests at once.
    #[error(
        "overloaded: this process asks the nodes for more than they can do, and {needed} of {total} must agree ({0})",
        needed = .0.votes_needed,
        total = .0.nodes_total
    )]
    Overloaded(Attempts),
    /// A majority agreed, but only after the validity of the lock had ended. The nodes are overloaded or far away.
    /// A longer ttl helps.
    #[error("too slow: the nodes answered after the validity of the lock had ended ({0})")]
    TooSlow(Attempts),
    /// A majority granted the lock, but its future was not polled before the validity was over: another branch of a
    /// `select!` ran, the thread was blocked, or the process stood still. The nodes are not the cause.
    #[error(
        "not polled in time: the nodes granted the lock, but its future was not polled before the validity was over ({0})"
    )]
    NotPolled(Attempts),
    /// Nodes started, or became masters, so recently that they may lack a lock that is still held. They have no vote
    /// until such a lock must have expired, and without them there was no majority within the waiting time.
    /// [`Redlock::ready`](crate::Redlock::ready) waits for a majority when a service starts. A shorter
    /// [`max_ttl`](crate::RedlockBuilder::max_ttl) shortens this time.
    /// [`Durability`](crate::Durability) is for masters that keep locks on disk, and for tests.
    #[error(
        "quarantined: a majority votes in {}, and Redlock::ready waits for that ({attempts})",
        WholeSeconds(*remaining)
    )]
    Quarantined {
        /// The time until a majority may vote, if no node fails before.
        remaining: Duration,
        /// The attempts that were made.
        attempts: Attempts,
    },
    /// Too many requests wait in this process, for one of the keys or for all keys together.
    #[error(
        "the queue is full: {waiting} requests of this process wait {limited_by}, and the limit is {limit}"
    )]
    QueueFull {
        /// How many requests wait.
        waiting: usize,
        /// How many requests may wait.
        limit: usize,
        /// Which of the limits has been reached.
        limited_by: WaiterLimit,
    },
    /// The fencing counters of the lock have reached the largest token. Reset the token that the resource has stored,
    /// then delete the counters (`redlock:fence:{<key>}`) on all nodes.
    #[error(
        "there is no larger fencing token: the counters are at {}",
        FencingToken::MAX
    )]
    FenceExhausted,
    /// The key cannot be used.
    #[error("invalid key: {0}")]
    InvalidKey(KeyError),
    /// The options of this lock are invalid.
    #[error("invalid options: {0}")]
    InvalidOptions(OptionsError),
    /// [`Redlock::shutdown`](crate::Redlock::shutdown) was called, or the runtime that the
    /// [`Redlock`](crate::Redlock) was built on has ended.
    #[error("shut down: no new locks are granted")]
    ShutDown,
    /// The operating system gave no random bits for a token.
    #[error("no random bits for a token: {0}")]
    Random(RandomError),
}

/// Lets a function that locks use `?` on [`Key::parts`](crate::Key::parts).
impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self::InvalidKey(error)
    }
}

impl LockError {
    /// Returns whether other clients are the only cause. Enough nodes work, so a later request may succeed.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended(_))
    }

    /// Returns the attempts, if the error records them: [`Contended`](Self::Contended), [`NoQuorum`](Self::NoQuorum),
    /// [`Overloaded`](Self::Overloaded), [`TooSlow`](Self::TooSlow), [`NotPolled`](Self::NotPolled) and
    /// [`Quarantined`](Self::Quarantined) do. `None` otherwise.
    #[must_use]
    pub fn attempts(&self) -> Option<&Attempts> {
        match self {
            Self::Contended(attempts)
            | Self::NoQuorum(attempts)
            | Self::Overloaded(attempts)
            | Self::TooSlow(attempts)
            | Self::NotPolled(attempts) => Some(attempts),
            Self::Quarantined { attempts, .. } => Some(attempts),
            Self::FenceExhausted
            | Self::QueueFull { .. }
            | Self::InvalidKey(_)
            | Self::InvalidOptions(_)
            | Self::ShutDown
            | Self::Random(_) => None,
        }
    }
}

/// Why the operating system gave no random bits.
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub struct RandomError(pub(crate) random::Failure);

/// The attempts that were made before an acquisition failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempts {
    /// How many attempts were made: requests to set the key, and scheduled checks of a key that another client had. See
    /// [`max_attempts`](crate::LockOptions::max_attempts).
    pub count: u32,
    /// The time from the request to the error.
    pub waited: Duration,
    /// How many nodes must agree.
    pub votes_needed: usize,
    /// How many nodes there are.
    pub nodes_total: usize,
    /// How many permits the [semaphore](crate::Redlock::semaphore) has. `None` for a lock.
    pub permits: Option<usize>,
    /// The other holders that the lock may have.
    pub(crate) share: Share,
    /// The client that had the key when the request last looked. `None` if it never looked, as one that may not
    /// [wait](crate::LockOptions::wait), if it is for several keys or a permit, or if no node told.
    pub taken_by: Option<Box<TakenBy>>,
    /// How many processes stood before this one in the line of the key when it was last told. `None` if it stood in none,
    /// as one that may not [wait](crate::LockOptions::wait), and a [reader](crate::RedlockRwLock::read).
    pub ahead: Option<u32>,
    /// Why nodes did not agree to the last attempt.
    pub nodes: NodeReports,
}

/// The client that had a key when a node was asked. Advice: it may have changed since then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenBy {
    /// The client.
    pub holder: Holder,
    /// How long it has the key yet, unless it extends or releases the lock. `None` if the key has no end, so that it is
    /// no lock.
    pub remaining: Option<Duration>,
}

impl Attempts {
    /// Returns whether a [reader](crate::RedlockRwLock::read) made them. A writer or another client
    /// kept it out, or a writer that waits.
    #[must_use]
    pub fn by_reader(&self) -> bool {
        self.share == Share::Reader
    }

    /// Returns whether a [writer](crate::RedlockRwLock::write) made them. Readers may have kept it out.
    #[must_use]
    pub fn by_writer(&self) -> bool {
        self.share == Share::Writer
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        write!(f, "{} attempt{s} in {}", self.count, ShownTime(self.waited))?;
        if let Some(ahead) = self.ahead {
            write!(f, ", number {} in the line", ahead.saturating_add(1))?;
        }
        if !self.nodes.is_empty() {
            write!(f, "; {}", self.nodes)?;
        }
        Ok(())
    }
}

/// Returns what was contended.
fn taken(attempts: &Attempts) -> String {
    match attempts.permits {
        None => "the lock".into(),
        Some(1) => "the only permit".into(),
        Some(permits) => format!("each of {permits} permits"),
    }
}

/// Returns who holds a lock that was contended.
fn taken_by(attempts: &Attempts) -> String {
    if let Some(TakenBy { holder, remaining }) = attempts.taken_by.as_deref() {
        return match remaining.map(ShownTime) {
            Some(time) => format!("held by {holder} for another {time}, if it is not extended"),
            None => format!("held by {holder}, without an end, so this is not a lock"),
        };
    }
    let whom = match (attempts.share, attempts.count) {
        (_, 0) if attempts.ahead.is_some() => "other processes come first",
        (Share::Reader, 0) => "a writer of this process holds it or waits for it",
        (Share::Reader, _) => "a writer or another client holds it, or a writer waits for it",
        (Share::Writer, 1..) => "readers or another client hold it, or several wanted it at once",
        (Share::Permit(_), 0) => "other tasks of this process hold permits or wait for one",
        (Share::Permit(_), _) => {
            "all permits are held by other clients, or several wanted the same one at once"
        }
        (_, 0) => "another task of this process holds it or waits for it",
        _ => "held by another client, or wanted by several at once",
    };
    whom.into()
}

/// Why a held lock could not be extended.
///
/// ```
/// # use redlock_tokio::{ExtendError, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// # async fn stop() {}
/// let guard = redlock.lock("order:42").await?;
/// match guard.extend().await {
///     Ok(()) => {}
///     Err(ExtendError::NoQuorum { remaining, .. }) => {
///         println!("the lock is still held for {remaining:.1?}");
///     }
///     Err(error) => {
///         eprintln!("{error}");
///         stop().await;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// No majority confirmed the extension. The lock stays valid for `remaining`. Background renewal, if it is on,
    /// tries again.
    #[error(
        "no majority extended the lock, which is held for another {} ({nodes})",
        ShownTime(*remaining)
    )]
    NoQuorum {
        /// How long the lock stays valid.
        remaining: Duration,
        /// The reasons of nodes that did not agree.
        nodes: NodeReports,
    },
    /// The lock has been held for [`max_hold`](crate::LockOptions::max_hold), and is not extended any more. The lock
    /// is held for `remaining` more.
    #[error(
        "the lock was held for max_hold, and is not extended; it is held for another {}",
        ShownTime(*remaining)
    )]
    MaxHold {
        /// How long the lock stays valid.
        remaining: Duration,
    },
    /// The ttl of [`extend_for`](crate::Hold::extend_for) is out of its range. The lock was not extended.
    #[error("cannot extend the lock: {0}")]
    InvalidTtl(OptionsError),
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The lock was released.
    #[error("the lock was released")]
    Released,
}

/// Why the lock of a writer did not become one of a reader. See [`LockGuard::downgrade`](crate::LockGuard::downgrade).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// The lock is not one of a [writer](crate::RedlockRwLock::write). Nothing has changed.
    #[error("only the lock of a writer can be downgraded")]
    NotAWriter,
    /// Too few nodes have confirmed the downgrade.
    #[error(transparent)]
    Extend(#[from] ExtendError),
}

/// Why [`Lock::with`](crate::Lock::with) did not finish its work.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WithLockError {
    /// The lock could not be acquired. The work was not begun.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost. The work was dropped at its current `await`, or ended after the loss. Effects of the work up
    /// to that point remain.
    #[error("the lock was lost before the work was done: {0}")]
    Lost(LossReason),
}

impl From<KeyError> for WithLockError {
    fn from(error: KeyError) -> Self {
        Self::Lock(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeError, NodeReport, Objection};

    #[test]
    fn an_error_names_each_node_and_its_reason() {
        let report = |address: &str, objection| NodeReport {
            address: address.into(),
            objection,
        };
        let error = LockError::NoQuorum(Attempts {
            count: 3,
            waited: Duration::from_nanos(5_000_123_456),
            votes_needed: 3,
            nodes_total: 5,
            permits: None,
            share: Share::Exclusive,
            taken_by: None,
            ahead: None,
            nodes: NodeReports::new(vec![
                report("a:6379", Objection::Failed(NodeError::Silent)),
                report("b:6379", Objection::Taken),
                report(
                    "c:6379",
                    Objection::Failed(NodeError::Refused {
                        code: "OOM".into(),
                        message: "command not allowed".into(),
                    }),
                ),
                report("d:6379", Objection::Taken),
            ]),
        });
        assert_eq!(
            error.to_string(),
            "no quorum: 3 of 5 nodes must agree (3 attempts in 5 s; \
             a:6379: silent since an earlier request; b:6379, d:6379: another client has the key; \
             c:6379: OOM command not allowed)"
        );
    }
}
