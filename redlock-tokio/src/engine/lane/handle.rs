use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::{Eligibility, Operation, RoundId, Timestamp, Ttl};
use tokio::sync::oneshot;

use super::{answers::SetRequests, in_flight::MAX_BATCH, status::StatusBoard};
use crate::{
    Clock, NodeError, NodeStatus,
    engine::{queue::Role, requests::RequestId, warning::Warning},
    foreign,
    node::{Answer, Command, LineRequest, Session},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

/// The most keys of a small request. That is as many as one request of a layer has by default.
pub(super) const SMALL: usize = 16;

/// How many keys may wait for a node that is slower than a majority of the others: a second of work for one that takes
/// nearly its whole timeout for each batch.
const MAX_BEHIND: usize = 16 * MAX_BATCH;

/// How many keys may wait for a node. Without this limit they would be more and more if a node
/// answers, but more slowly than it is asked.
const MAX_WAITING: usize = 512 * MAX_BATCH;

/// Likewise, for large requests. (It is work for about two seconds where one client and its five servers
/// share two processors: less than a caller waits by default.)
const MAX_WAITING_LARGE: usize = MAX_WAITING / 2;

/// How long a request for a new lock may wait in a lane until it is sent.
pub(crate) const MOST_WAIT: Duration = Duration::from_secs(1);

/// Who has sent a command.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    Request(RequestId, Role),
    /// A person, by a release by force. The first answer counts.
    Forced(Arc<Mutex<Option<oneshot::Sender<Answer>>>>),
}

/// Where the answer to a command goes, and what is known of the requests that set its key.
#[derive(Debug)]
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

/// A message to a lane from its handle.
pub(super) enum Message {
    /// A command for the node.
    Request(Command, ReplyTo),
    /// Asks what the node has.
    Ask(Question),
    /// Concerns the line of a key.
    Line(LineRequest, LineAsker),
    /// Asks the lane to answer when nothing is in flight or owed.
    Drain(oneshot::Sender<()>),
}

/// Asks the session, whose votes are worth this much, or says why there is none. The future ends when the answer is delivered.
pub(super) type Question =
    Box<dyn FnOnce(Result<&mut dyn Session, NodeError>, Eligibility) -> Asked + Send>;

pub(super) type Asked = BoxFuture<'static, ()>;

/// Who gets the answer to a [`LineRequest`].
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

/// The end of a lane that callers have.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    pub(crate) address: Arc<str>,
    inbox: mpsc::UnboundedSender<Message>,
    /// How much waits for the node, and where its releases are.
    pub(crate) counters: Arc<Counters>,
    /// How the node is. [`status`](Self::status) also knows whether the runtime has ended.
    pub(crate) board: Arc<StatusBoard>,
    /// Keys on the node have less time left than they should have.
    pub(crate) expires_too_early: Warning,
    /// Keys on the node have more time left than they should have.
    pub(crate) expires_too_late: Warning,
}

/// The lane's runtime has ended, so the command was not sent.
pub(crate) struct LaneClosed;

impl LaneHandle {
    /// Creates one, and what gets its messages.
    pub(super) fn new(
        address: &str,
        board: StatusBoard,
    ) -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (inbox, messages) = mpsc::unbounded_channel();
        let handle = Self {
            address: address.into(),
            inbox,
            counters: Arc::default(),
            board: Arc::new(board),
            expires_too_early: Warning::default(),
            expires_too_late: Warning::default(),
        };
        (handle, messages)
    }

    /// Passes a command to the lane. Never blocks.
    pub(crate) fn send(&self, command: Command, reply_to: ReplyTo) -> Result<(), LaneClosed> {
        self.counters.note_given(&command);
        let sent = self.inbox.send(Message::Request(command, reply_to));
        sent.map_err(|unsent| {
            if let Message::Request(command, _) = unsent.0 {
                self.counters.note_taken(&command);
            }
            LaneClosed
        })
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
        let sent = self.inbox.send(Message::Ask(question));
        sent.map_err(|_| runtime_ended())?;
        match clock.timeout(limit, answered).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(NodeError::Disconnected("before it answered".into())),
            None => Err(NodeError::TimedOut(limit)),
        }
    }

    /// Passes a request about a line to the lane. Never blocks. If the runtime has ended, the caller learns of that by other ways.
    pub(crate) fn send_to_line(&self, request: LineRequest, asker: LineAsker) {
        let _ = self.inbox.send(Message::Line(request, asker));
    }

    /// Waits until all earlier requests are answered and the node is owed no release.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.inbox.send(Message::Drain(done)).is_ok() {
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
        self.inbox.is_closed()
    }
}

/// Why nothing is sent to the nodes any more.
pub(crate) fn runtime_ended() -> NodeError {
    NodeError::Unreachable("the runtime has shut down".into())
}

/// How much waits for a lane's node, and where its undelivered releases are.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The keys of the requests that the lane has neither sent nor answered yet.
    waiting: AtomicUsize,
    /// Releases that the lane has neither sent nor answered yet.
    queued: AtomicUsize,
    /// Releases that wait for the node to come back.
    pub(super) owed: AtomicUsize,
    /// Releases that were sent and not answered yet.
    pub(super) in_flight: AtomicUsize,
    /// Releases that were never delivered: their keys have expired by themselves.
    pub(super) abandoned: AtomicUsize,
}

impl Counters {
    /// Counts a request that is given to the lane.
    pub(super) fn note_given(&self, command: &Command) {
        self.waiting
            .fetch_add(command.key_count(), Ordering::Relaxed);
        if is_release(command) {
            self.queued.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request as sent or answered.
    pub(super) fn note_taken(&self, command: &Command) {
        self.waiting
            .fetch_sub(command.key_count(), Ordering::Relaxed);
        if is_release(command) {
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns why requests that have waited for too long are refused: the node cannot do all that is asked of it, or this
    /// process did not run for a while.
    pub(super) fn why_late(&self) -> NodeError {
        if self.waiting.load(Ordering::Relaxed) >= MAX_BATCH {
            NodeError::Overloaded
        } else {
            NodeError::TimedOut(MOST_WAIT)
        }
    }

    /// Returns whether too much waits to give the lane the request if other nodes are enough.
    pub(crate) fn is_behind(&self, command: &Command) -> bool {
        may_be_left_out(command) && self.waiting.load(Ordering::Relaxed) >= MAX_BEHIND
    }

    /// Returns whether too much waits already to give the lane the request.
    pub(crate) fn is_too_much(&self, command: &Command) -> bool {
        let limit = if command.key_count() > SMALL {
            MAX_WAITING_LARGE
        } else {
            MAX_WAITING
        };
        may_be_left_out(command) && self.waiting.load(Ordering::Relaxed) >= limit
    }

    /// Returns how many releases were not delivered yet, or never will be. A release counts even if the request to set
    /// its key still waits before it.
    pub(crate) fn undelivered(&self) -> usize {
        let Self {
            waiting: _,
            queued,
            owed,
            in_flight,
            abandoned,
        } = self;
        [queued, owed, in_flight, abandoned]
            .into_iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns how many releases wait for the node to come back.
    pub(crate) fn owed(&self) -> usize {
        self.owed.load(Ordering::Relaxed)
    }

    /// Returns how many releases are on their way to the node.
    #[cfg(feature = "test-util")]
    pub(crate) fn under_way(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed)
    }
}

/// A command that keeps a lock or ends it is never too much.
fn may_be_left_out(command: &Command) -> bool {
    let operation = command.operation();
    matches!(
        operation,
        Operation::Acquire { .. } | Operation::Probe { .. }
    )
}

pub(super) fn is_release(command: &Command) -> bool {
    matches!(command.operation(), Operation::Release { .. })
}
