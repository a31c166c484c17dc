use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{FencingToken, LossReason, Share, Timestamp, Token};

use crate::{Acquisition, Key, LockError, NodeReports, NodeState, key::KeySet};

/// An event, for an [`Observer`](crate::Observer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Something happened to a request for a lock, or to the lock that it got.
    Lock(LockEvent),
    /// Something happened to a node.
    Node(NodeEvent),
    /// A call of a layer of `redlock-tower` or `redlock-axum` runs without its lock, since no quorum is available and
    /// the layer has `fail_open`. Its request has [failed](LockChange::Failed) before.
    FailedOpen {
        /// The label of the layer.
        label: &'static str,
    },
}

impl Event {
    pub(crate) fn of_lock(at: Timestamp, subject: &Arc<Subject>, change: LockChange) -> Self {
        Self::Lock(LockEvent {
            at,
            change,
            subject: Arc::clone(subject),
        })
    }
}

/// Something that happened to a request for a lock, or to the lock that it got.
///
/// ```text
/// Requested -> Attempted .. -> Acquired -> Extended .. -> Released, HandedOver, GivenAway or Lost
///           \-> Failed or Cancelled
/// ```
///
/// A writer that becomes a reader is `Downgraded` in between.
///
/// Each `Requested` is followed by one `Acquired`, `Failed` or `Cancelled`, and each `Acquired` by one `Released`,
/// `HandedOver`, `GivenAway` or `Lost`, unless the guard is leaked. All of them have the same [`request`](Self::request). A request
/// with an invalid key or invalid options, and one after a shutdown, has no events.
///
/// `Debug` shows no keys.
#[derive(Clone)]
#[non_exhaustive]
pub struct LockEvent {
    /// The time, by the [clock](crate::RedlockBuilder::clock) of the client.
    pub at: Timestamp,
    /// The event itself.
    pub change: LockChange,
    subject: Arc<Subject>,
}

/// A request as observers know it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) request: u64,
    pub(crate) label: Option<&'static str>,
    pub(crate) keys: KeySet,
}

impl Subject {
    /// Returns the subject of a writer as that of a reader.
    pub(crate) fn downgraded(&self) -> Self {
        Self {
            keys: KeySet::to_read(self.keys.first().clone()),
            ..*self
        }
    }
}

impl LockEvent {
    /// Returns the number of the request. No two requests of one client have the same.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.subject.request
    }

    /// Returns what the lock is for: its [label](crate::LockOptions::label).
    #[must_use]
    pub fn label(&self) -> Option<&'static str> {
        self.subject.label
    }

    /// Returns the first key, with its prefix. Of a permit, it is the key of the semaphore.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.subject.keys.first()
    }

    /// Returns all keys with their prefix, in order and without repetitions.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.subject.keys.iter()
    }

    /// Returns which other holders the lock may have, as it was requested. After a [downgrade](LockChange::Downgraded) it is
    /// that of a reader.
    #[must_use]
    pub fn share(&self) -> Share {
        self.subject.keys.share()
    }
}

impl fmt::Debug for LockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvent")
            .field("at", &self.at)
            .field("request", &self.request())
            .field("label", &self.label())
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}

/// A change of a request for a lock, or of the lock that it got.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockChange {
    /// A task asks for the lock.
    Requested,
    /// The nodes are asked to grant the lock. Repeated for each attempt. Requests that wait behind others of this process
    /// make none.
    Attempted {
        /// The value that the key gets on the nodes.
        token: Token,
    },
    /// The task has the lock.
    Acquired {
        /// The [token](crate::Hold::token) of the lock, which stays the same in a handover.
        token: Token,
        /// The [fencing token](crate::Hold::fencing_token), if one was asked for.
        fence: Option<FencingToken>,
        /// The nodes that granted the lock, or the holder before, and the time that it took.
        acquisition: Acquisition,
    },
    /// The task did not get the lock.
    Failed {
        /// Why.
        error: LockError,
        /// The time since the request.
        waited: Duration,
    },
    /// The task gave up: its future was dropped.
    Cancelled {
        /// The time since the request.
        waited: Duration,
    },
    /// A majority of the nodes has extended the lock. Readers of one process share a lock, and one of them has the event.
    Extended {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
    },
    /// An extension failed. The lock is still held, and the extension is tried again.
    ExtensionFailed {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// The nodes that did not agree, with their reasons.
        nodes: NodeReports,
    },
    /// The writer has [become a reader](crate::LockGuard::downgrade), and has the lock as one from then on.
    Downgraded {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// How long the task had the lock as a writer.
        held: Duration,
    },
    /// The holder has given the lock back. The nodes may not know it yet. Of readers of one process that share a lock,
    /// only the last one releases it on the nodes. A lock that is [released
    /// later](crate::LockGuard::release_after) stays taken until then.
    Released {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// How long the task had the lock, or had it as a reader.
        held: Duration,
    },
    /// The holder has given the lock back, and the next waiter of this process has it. No node was asked.
    HandedOver {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// How long the task had the lock.
        held: Duration,
    },
    /// The holder has given the lock away, for another process to [adopt](crate::Redlock::adopt). It is not released.
    GivenAway {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// How long the task had the lock.
        held: Duration,
    },
    /// The lock was lost. Its holder may still be at work.
    Lost {
        /// The [token](crate::Hold::token) of the lock.
        token: Token,
        /// Why.
        reason: LossReason,
        /// How long the task had the lock, or had it as a reader.
        held: Duration,
    },
}

/// Something that happened to a node, as this client sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeEvent {
    /// The time, by the [clock](crate::RedlockBuilder::clock) of the client.
    pub at: Timestamp,
    /// The address of the node, without credentials.
    pub address: Arc<str>,
    /// The event itself.
    pub change: NodeChange,
}

/// A change of a node, as this client sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeChange {
    /// A connection was made. It may be some time until the node votes.
    Connected {
        /// The address of the master, if sentinels or a cluster's nodes name it.
        owner: Option<Arc<str>>,
    },
    /// The state has changed.
    Entered(NodeState),
    /// The node has answered a batch of requests.
    Answered {
        /// The time since the requests were sent. It contains the wait behind earlier ones.
        round_trip: Duration,
    },
    /// The number of releases has changed that wait for the node to come back.
    Owed {
        /// How many wait now.
        releases: usize,
    },
    /// Releases were never delivered. Their keys have expired by themselves.
    Abandoned {
        /// How many.
        releases: usize,
    },
    /// The client asks the node no more: its [`Redlock`](crate::Redlock) or its runtime has ended.
    Ended,
}
