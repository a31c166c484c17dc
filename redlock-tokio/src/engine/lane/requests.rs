use std::{
    future::{Future, pending, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::NodeId;
use tokio::sync::oneshot;

use super::{
    answers::Answers,
    backlog::Backlog,
    batch::{Batch, Purpose},
    counters::Counters,
    handle::{LineQuestion, LookUp, Message, OnRelease},
    limits::MAX_BATCH,
};
use crate::{Clock, NodeError, foreign, node::Session, sync::mpsc};

/// The requests that a lane was given and has not sent yet.
pub(super) struct Requests {
    node: NodeId,
    inbox: mpsc::UnboundedReceiver<Message>,
    backlog: Backlog,
    /// All handles are gone, and the inbox is empty.
    is_closed: bool,
    pub(super) answers: Answers,
    /// The questions about keys that were not sent yet.
    pub(super) look_ups: Vec<LookUp>,
    /// The requests about lines that were not sent yet.
    pub(super) lines: Vec<LineQuestion>,
    /// The callers that wait until nothing is in flight or owed.
    drains: Vec<oneshot::Sender<()>>,
    pub(super) counters: Arc<Counters>,
}

impl Requests {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        inbox: mpsc::UnboundedReceiver<Message>,
        counters: Arc<Counters>,
        on_release: OnRelease,
    ) -> Self {
        Self {
            node,
            inbox,
            backlog: Backlog::new(),
            is_closed: false,
            answers: Answers::new(node, clock, Arc::clone(&counters), on_release),
            look_ups: Vec::new(),
            lines: Vec::new(),
            drains: Vec::new(),
            counters,
        }
    }

    /// Waits until there are requests to handle. Pending for ever if all handles are gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub(super) async fn receive(&mut self) {
        if !self.backlog.is_empty() || !self.lines.is_empty() {
            return;
        }
        if self.is_closed {
            return pending().await;
        }
        match self.inbox.recv().await {
            Some(message) => self.take_in(message),
            None => self.is_closed = true,
        }
    }

    /// Lets the tasks that are ready add their requests to what was received. The first of them has
    /// woken the lane, which would otherwise send its request alone.
    pub(super) async fn receive_from_ready_tasks(&mut self) {
        yield_to_ready().await;
        self.receive_waiting();
    }

    fn receive_waiting(&mut self) {
        // No more than there are now: others may send all the time.
        for _ in 0..self.inbox.len() {
            if let Ok(message) = self.inbox.try_recv() {
                self.take_in(message);
            }
        }
    }

    /// Makes the next batch of what was received, either of small requests or of large ones. It is empty if nothing is
    /// left.
    pub(super) fn take_batch(&mut self) -> Batch {
        let line = self.backlog.next_line();
        let mut batch = Batch::with_capacity(line.len().min(MAX_BATCH));
        while batch.keys() < MAX_BATCH
            && let Some((command, origin)) = line.pop()
        {
            self.counters.note_taken(&command);
            if command.operation().sets_key() {
                origin.requester.set_requests().note_sent(self.node);
            }
            batch.push(command, Purpose::Request(origin));
        }
        batch
    }

    /// Sends the requests about lines that have come. Returns what delivers the answers, if there are any.
    pub(super) fn ask_lines(
        &mut self,
        session: &mut dyn Session,
    ) -> Option<BoxFuture<'static, ()>> {
        if self.lines.is_empty() {
            return None;
        }
        // There may have been very many of them.
        let questions = mem::take(&mut self.lines).into_iter();
        let (requests, replies): (Vec<_>, Vec<_>) = questions
            .map(|LineQuestion { request, answer }| (request, answer))
            .unzip();
        let answers = session.line(&requests);
        let deliver = async {
            let (answers, cause) = match answers.await {
                Ok(answers) => (answers, NodeError::Unexpected("no answer".into())),
                Err(error) => (Vec::new(), error),
            };
            let mut answers = answers.into_iter();
            for reply in replies {
                reply.send(answers.next().ok_or_else(|| cause.clone()));
            }
        };
        Some(deliver.boxed())
    }

    /// Refuses the requests that were received: they are answered and not sent. The releases among
    /// them are owed.
    pub(super) fn refuse(&mut self, cause: &NodeError) {
        self.receive_waiting();
        for look_up in self.look_ups.drain(..) {
            // An error means that nobody waits for the answer.
            let _ = foreign::call(|| look_up.answer.send(Err(cause.clone())));
        }
        for question in mem::take(&mut self.lines) {
            question.answer.send(Err(cause.clone()));
        }
        for (command, origin) in self.backlog.take_all() {
            self.counters.note_taken(&command);
            self.answers.refuse(command, origin, cause.clone());
        }
    }

    /// Waits for `until`, and refuses each request meanwhile, because the node cannot be reached.
    /// Returns `None` if the lane has ended before.
    pub(super) async fn refuse_until<T>(
        &mut self,
        until: impl Future<Output = T>,
        cause: &NodeError,
    ) -> Option<T> {
        let mut until = pin!(until);
        loop {
            self.answers.forget_expired();
            if self.has_ended() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut until => return Some(done),
                () = self.receive() => self.refuse(cause),
            }
        }
    }

    /// Returns whether the lane can end: nothing waits, nothing is owed, and no request can come any more.
    /// Also informs the callers that drain the lane if nothing waits or is owed. Must be called while nothing
    /// is in flight.
    pub(super) fn has_ended(&mut self) -> bool {
        let waits = !self.backlog.is_empty() || !self.lines.is_empty();
        if waits || !self.answers.owed_releases.is_empty() {
            return false;
        }
        for done in self.drains.drain(..) {
            // An error means that nobody waits any more.
            let _ = foreign::call(|| done.send(()));
        }
        self.is_closed
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::Request(command, origin) => self.backlog.push(command, origin),
            Message::LookUp(look_up) => self.look_ups.push(look_up),
            Message::Line(question) => self.lines.push(question),
            Message::Drain(done) => self.drains.push(done),
        }
    }
}

impl Drop for Requests {
    /// The runtime may end before the lane does. Releases that were not sent stay counted, as those
    /// in flight do, unless the node cannot hold their key.
    fn drop(&mut self) {
        let mut requests: Vec<_> = self.backlog.take_all().collect();
        while let Ok(message) = self.inbox.try_recv() {
            if let Message::Request(command, origin) = message {
                requests.push((command, origin));
            }
        }
        for (command, origin) in requests {
            if !origin.requester.set_requests().was_sent(self.node) {
                self.counters.note_taken(&command);
            }
        }
    }
}

/// Lets the tasks that are ready to run on this thread run first.
///
/// Unlike [`tokio::task::yield_now`], this does not make the runtime poll its sockets and timers. That
/// would cost a system call if no other task is ready.
async fn yield_to_ready() {
    let mut passed = false;
    poll_fn(|cx| {
        if passed {
            return Poll::Ready(());
        }
        passed = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
