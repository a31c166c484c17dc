use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::{Eligibility, Operation, RoundId, Timestamp, Ttl};
use tokio::sync::oneshot;

use super::{answers::SetRequests, in_flight::Batch, outbox::LaneEnded, status::StatusBoard};
use crate::{
    Clock, NodeError, NodeStatus,
    engine::{
        queue::Role,
        requests::{Link, RequestId},
        warning::Warning,
    },
    foreign,
    node::{Answer, Command, Session},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The sender of a command.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    Request(RequestId, Role),
    /// A person, by a release by force. The first answer counts.
    Forced(Arc<Mutex<Option<oneshot::Sender<Answer>>>>),
}

/// Where the answer to a command goes, and what is known of the requests that set its key.
pub(crate) struct ReplyTo {
    pub(crate) whom: Whom,
    pub(crate) round: RoundId,
    /// Where lanes note the requests to set the key that they sent.
    pub(crate) set_requests: Arc<SetRequests>,
    /// The longest time that a key lives after a node has set or extended it.
    pub(crate) ttl: Ttl,
    /// From then on the command is of no use. If the lane has not sent it by then, it refuses it.
    pub(crate) until: Timestamp,
}

/// Asks the session, whose votes are worth this much, or says why there is none. The future ends when the answer is delivered.
pub(super) type Question =
    Box<dyn FnOnce(Result<&mut dyn Session, NodeError>, Eligibility) -> Asked + Send>;

pub(super) type Asked = BoxFuture<'static, ()>;

/// Who gets the answer to a [request](crate::node::LineRequest) about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineAsker {
    Request(RequestId, LineQuestion),
    /// The lane, which beats.
    Beat,
    /// The lane, which sends a request to leave again unless this one is answered.
    Owed(u64),
    Nobody,
}

/// What a request asks the node of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineQuestion {
    /// Whether other processes wait.
    Others,
    /// Its place in the line of a key, by the index of the key, in a wait of this number.
    Place {
        wait: u32,
        index: usize,
        only_behind_others: bool,
    },
}

/// The end of a lane that callers have. Their requests are in the lane's [outbox](super::Outbox).
pub(crate) struct LaneHandle {
    pub(crate) address: Arc<str>,
    link: Link,
    /// Where the releases are that the lane has taken.
    pub(crate) counters: Arc<Counters>,
    /// How the node is. [`status`](Self::status) also knows whether the runtime has ended.
    pub(crate) board: Arc<StatusBoard>,
    /// Keys on the node have less time left than they should have.
    pub(crate) expires_too_early: Warning,
    /// Keys on the node have more time left than they should have.
    pub(crate) expires_too_late: Warning,
}

impl LaneHandle {
    pub(super) fn new(address: &str, link: Link, board: StatusBoard) -> Self {
        Self {
            address: address.into(),
            link,
            counters: Arc::default(),
            board: Arc::new(board),
            expires_too_early: Warning::default(),
            expires_too_late: Warning::default(),
        }
    }

    /// Passes the lane a command that comes from no request.
    pub(crate) fn send(&self, command: Command, reply_to: ReplyTo) -> Result<(), LaneEnded> {
        self.link.give(|outbox| outbox.send(command, reply_to))
    }

    /// Asks the node for something that no lock depends on, and waits for at most `limit`. Also returns what its votes were
    /// worth when it was asked.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        clock: &Clock,
        limit: Duration,
        ask: impl FnOnce(&mut dyn Session) -> BoxFuture<'static, Result<T, NodeError>> + Send + 'static,
    ) -> Result<(T, Eligibility), NodeError> {
        let (mut answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |session, eligibility| {
            let found = session.map_or_else(|cause| ready(Err(cause)).boxed(), ask);
            async move {
                let found = tokio::select! {
                    biased; // An answer that is here is delivered even if nobody waits any more.
                    found = found => found,
                    // Nobody waits any more. A node that is silent must not delay a shutdown.
                    () = answer.closed() => return,
                };
                // An error means that nobody waits for the answer.
                foreign::call(|| _ = answer.send(found.map(|it| (it, eligibility))));
            }
            .boxed()
        });
        let asked = self.link.give(|outbox| outbox.ask(question));
        asked.map_err(|_| runtime_ended())?;
        match clock.timeout(limit, answered).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(NodeError::Disconnected("before it answered".into())),
            None => Err(NodeError::TimedOut(limit)),
        }
    }

    /// Waits until all earlier requests are answered and the node is owed no release.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.link.give(|outbox| outbox.drain(done)).is_ok() {
            // An error means that the lane has ended, so there is nothing to wait for.
            let _ = drained.await;
        }
    }

    pub(crate) fn status(&self, now: Timestamp) -> NodeStatus {
        if self.is_closed() {
            self.board.disconnected(now, runtime_ended());
        }
        self.board.status(&self.address, now)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.counters.has_ended.load(Ordering::SeqCst)
    }
}

/// Why nothing is sent to the nodes any more.
pub(crate) fn runtime_ended() -> NodeError {
    NodeError::Unreachable("the runtime has shut down".into())
}

/// How far a lane is with the releases that it has taken, and whether it has ended.
#[derive(Default)]
pub(crate) struct Counters {
    /// Releases that wait for the node to come back.
    pub(super) owed: AtomicUsize,
    /// Releases that were sent and not answered yet.
    pub(super) in_flight: AtomicUsize,
    /// Releases that were never delivered: their keys have expired by themselves.
    pub(super) abandoned: AtomicUsize,
    pub(super) has_ended: AtomicBool,
}

impl Counters {
    /// Notes that the releases of a batch are sent. Until then they count as what waits, so that none is missed.
    pub(super) fn note_sent(&self, batch: &Batch) {
        self.in_flight.fetch_add(batch.releases, Ordering::Relaxed);
    }

    /// Returns how many releases were not delivered yet, or never will be.
    pub(crate) fn undelivered(&self) -> usize {
        let counters = [&self.owed, &self.in_flight, &self.abandoned].into_iter();
        counters.map(|it| it.load(Ordering::Relaxed)).sum()
    }

    /// Returns how many releases wait for the node to come back.
    pub(crate) fn owed(&self) -> usize {
        self.owed.load(Ordering::Relaxed)
    }

    /// Returns how many releases are on their way to the node.
    #[cfg(feature = "test-util")]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

pub(super) fn is_release(command: &Command) -> bool {
    matches!(command.operation(), Operation::Release { .. })
}
