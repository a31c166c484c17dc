use std::{fmt, time::Duration};

use redlock_core::{FencingToken, LossReason};
use thiserror::Error;

use crate::{
    KeyError, NodeReport, NodeReports, Objection, OptionsError, whole_seconds::WholeSeconds,
};

/// Why a lock could not be acquired.
///
/// Whichever it is: the critical section was not entered, and what was set on any node is being
/// released.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another client holds the lock, or several that want it kept each other from it, until the
    /// waiting time was over. No attempt was made if it is another task of this process that holds the
    /// lock or waits for it.
    #[error("the lock is taken: {whom} ({0})", whom = taken_by(.0))]
    Contended(Attempts),
    /// So many nodes are down, silent or refusing that no majority could be had.
    #[error(
        "no quorum: {needed} of {possible} nodes must agree ({0})",
        needed = .0.votes_needed,
        possible = .0.votes_possible
    )]
    NoQuorum(Attempts),
    /// A majority agreed, but so late that the lock's validity was already spent. The nodes are
    /// overloaded or far away; try a longer ttl.
    #[error("too slow: the nodes answered after the lock's validity was spent ({0})")]
    TooSlow(Attempts),
    /// Nodes that were needed came up so recently that they may have forgotten a lock that is
    /// still held; they have no vote until that lock must have expired, which was not within the waiting
    /// time. [`Redlock::ready`](crate::Redlock::ready) waits for it when a service starts.
    #[error(
        "quarantined: nodes came up so recently that they may have forgotten a lock, and a majority \
         votes in {}; a shorter max_ttl shortens that, nodes_are_durable is for nodes that keep locks \
         on disk, trust_fresh_nodes is for tests{}",
        WholeSeconds(*remaining),
        Failures(&attempts.nodes)
    )]
    Quarantined {
        /// How long until a majority may vote, if no node fails meanwhile.
        remaining: Duration,
        /// What was tried.
        attempts: Attempts,
    },
    /// Too many wait already, for this key or in all, within this process.
    #[error(
        "the queue is full: {waiting} wait in this process, and the limit is {limit}; see max_waiters_per_key and \
         max_waiters_total"
    )]
    QueueFull {
        /// How many wait.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// The expected wait exceeds the limit, and
    /// [`refuse_long_waits`](crate::LockOptions::refuse_long_waits) was set.
    #[error(
        "the expected wait exceeds the limit: {waiting} wait in this process, which takes about \
         {expected:?}, and the limit is {limit:?}; see refuse_long_waits"
    )]
    WaitTooLong {
        /// How many wait for the key.
        waiting: usize,
        /// How long one more would wait, if each of them held the lock as briefly as the shortest of the
        /// last eight holds.
        expected: Duration,
        /// How long it was to wait at most.
        limit: Duration,
    },
    /// The lock's fencing counters have reached the largest token. Delete them (`redlock:fence:{<key>}`, on
    /// all nodes) once the resource has been told to start anew.
    #[error(
        "there is no larger fencing token: the counters are at {}",
        FencingToken::MAX
    )]
    FenceExhausted,
    /// The key cannot be used.
    #[error("invalid key: {0}")]
    InvalidKey(KeyError),
    /// The options given for this lock cannot be used.
    #[error("invalid options: {0}")]
    InvalidOptions(OptionsError),
    /// [`Redlock::shutdown`](crate::Redlock::shutdown) was called, or the runtime that the
    /// [`Redlock`](crate::Redlock) was built on has ended.
    #[error("shut down: no more locks are given out")]
    ShutDown,
    /// The operating system gave no random bits for a token.
    #[error("no random bits for a token: {0}")]
    Random(RandomError),
}

/// So that a function that locks can use `?` on [`Key::parts`](crate::Key::parts).
impl From<KeyError> for LockError {
    fn from(error: KeyError) -> Self {
        Self::InvalidKey(error)
    }
}

impl LockError {
    /// Returns whether another client holding the lock is the only thing in the way.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended(_))
    }

    /// Returns whether the nodes are the reason, and not other clients or the caller.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::NoQuorum(_) | Self::TooSlow(_) | Self::Quarantined { .. }
        )
    }

    /// Returns what was tried, if anything was sent.
    #[must_use]
    pub fn attempts(&self) -> Option<&Attempts> {
        match self {
            Self::Contended(attempts) | Self::NoQuorum(attempts) | Self::TooSlow(attempts) => {
                Some(attempts)
            }
            Self::Quarantined { attempts, .. } => Some(attempts),
            Self::FenceExhausted
            | Self::QueueFull { .. }
            | Self::WaitTooLong { .. }
            | Self::InvalidKey(_)
            | Self::InvalidOptions(_)
            | Self::ShutDown
            | Self::Random(_) => None,
        }
    }
}

/// Why the operating system gave no random bits, in its words.
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub struct RandomError(pub(crate) getrandom::Error);

/// What was tried before an acquisition failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempts {
    /// How many attempts were made.
    pub count: u32,
    /// How long they took together.
    pub waited: Duration,
    /// How many nodes must agree.
    pub votes_needed: usize,
    /// How many nodes there are.
    pub votes_possible: usize,
    /// Why nodes did not agree to the last attempt.
    pub nodes: NodeReports,
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        // Microseconds are enough for people.
        let waited = Duration::from_micros(self.waited.as_micros() as u64);
        write!(f, "{} attempt{s} in {waited:?}", self.count)?;
        if !self.nodes.is_empty() {
            write!(f, "; {}", self.nodes)?;
        }
        Ok(())
    }
}

/// Tells who has a lock that was not to be had.
fn taken_by(attempts: &Attempts) -> &'static str {
    match attempts.count {
        0 => "another task of this process holds it or waits for it",
        _ => "held by another client, or wanted by several at once",
    }
}

/// What nodes say that are not only waiting for the end of their quarantine.
struct Failures<'a>(&'a NodeReports);

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_failure = |it: &&NodeReport| matches!(it.objection, Objection::Failed(_));
        let failures: Vec<_> = self.0.iter().filter(is_failure).cloned().collect();
        if failures.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", NodeReports::new(failures))
    }
}

/// Why a held lock could not be extended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// No majority extended it this time. The lock is still held for `remaining`, and the
    /// background renewal goes on trying.
    #[error("no majority extended the lock, it is held for {remaining:?} more ({nodes})")]
    NoQuorum {
        /// How long the lock stays valid.
        remaining: Duration,
        /// Why nodes did not agree.
        nodes: NodeReports,
    },
    /// The lock has been held for the longest time allowed, and will not be extended any more.
    /// It is still held for `remaining`.
    #[error("held for the longest time allowed, and for {remaining:?} more")]
    MaxHold {
        /// How long the lock stays valid.
        remaining: Duration,
    },
    /// The lock is lost.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The lock was released.
    #[error("the lock was released")]
    Released,
}

/// Why [`Redlock::with_lock`](crate::Redlock::with_lock) did not finish its work.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum WithLockError {
    /// The lock could not be acquired; the work was not begun.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost. The work was dropped where it stood, or ended after the loss; what it
    /// had done by then is done.
    #[error("the lock was lost while its holder worked: {0}")]
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
    use crate::NodeError;

    #[test]
    fn reads_well_on_call() {
        let report = |address: &str, objection| NodeReport {
            address: address.into(),
            objection,
        };
        let error = LockError::NoQuorum(Attempts {
            count: 3,
            waited: Duration::from_nanos(5_000_123_456),
            votes_needed: 3,
            votes_possible: 5,
            nodes: NodeReports::new(vec![
                report("a:6379", Objection::Failed(NodeError::Silent)),
                report("b:6379", Objection::Denied),
                report(
                    "c:6379",
                    Objection::Failed(NodeError::Refused {
                        code: "OOM".into(),
                        message: "command not allowed".into(),
                    }),
                ),
                report("d:6379", Objection::Denied),
            ]),
        });
        assert_eq!(
            error.to_string(),
            "no quorum: 3 of 5 nodes must agree (3 attempts in 5.000123s; \
             a:6379: silent since an earlier request; b:6379, d:6379: the key is not ours; \
             c:6379: OOM command not allowed)"
        );
    }
}
