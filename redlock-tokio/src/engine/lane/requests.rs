use std::{
    future::{Future, pending},
    pin::pin,
    sync::Arc,
};

use redlock_core::{NodeId, Operation};
use tokio::sync::oneshot;

use super::{
    answers::Answers,
    batch::{Batch, Purpose},
    counters::Counters,
    limits::{MAX_BATCH, MAX_QUEUED},
    message::Message,
    requester::{Origin, Requester},
    yield_to_ready::yield_to_ready,
};
use crate::{Clock, NodeError, node::Command, sync::mpsc};

/// The requests that a lane was given and has not sent yet.
pub(super) struct Requests<R: Requester> {
    node: NodeId,
    inbox: mpsc::UnboundedReceiver<Message<R>>,
    /// The messages that were taken from the inbox and not handled yet.
    received: Vec<Message<R>>,
    /// All handles are gone, and the inbox is empty.
    is_closed: bool,
    answers: Answers<R>,
    /// The callers that wait until nothing is in flight or owed.
    drains: Vec<oneshot::Sender<()>>,
    counters: Arc<Counters>,
}

impl<R: Requester> Requests<R> {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        inbox: mpsc::UnboundedReceiver<Message<R>>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            node,
            inbox,
            received: Vec::new(),
            is_closed: false,
            answers: Answers::new(node, clock, Arc::clone(&counters)),
            drains: Vec::new(),
            counters,
        }
    }

    /// Waits for messages and takes up to a batch of them. Pending for ever if all handles are gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub(super) async fn receive(&mut self) {
        if self.is_closed {
            return pending().await;
        }
        let count = self.inbox.recv_many(&mut self.received, MAX_BATCH).await;
        self.is_closed = count == 0;
    }

    /// Lets the tasks that are ready add their requests to what was received. The first of them has
    /// woken the lane, which would otherwise send its request alone.
    pub(super) async fn receive_from_ready_tasks(&mut self) {
        yield_to_ready().await;
        while self.received.len() < MAX_BATCH
            && let Ok(message) = self.inbox.try_recv()
        {
            self.received.push(message);
        }
    }

    /// Makes a batch of the requests that were received.
    pub(super) fn take_batch(&mut self) -> Batch<R> {
        let mut batch = Batch::with_capacity(self.received.len());
        let node = self.node;
        self.handle_received(|_, command, origin| {
            if matches!(command.operation(), Operation::Acquire { .. }) {
                origin.requester.set_requests().note_sent(node);
            }
            batch.push(command, Purpose::Request(origin));
        });
        batch
    }

    /// Refuses the requests that were received: they are answered and not sent. The releases among
    /// them are owed.
    pub(super) fn refuse(&mut self, cause: &NodeError) {
        self.handle_received(|answers, command, origin| {
            answers.refuse(command, origin, cause.clone());
        });
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

    /// Returns whether the lane can end: nothing is owed, and no request can come any more. Also tells
    /// the callers that drain the lane if nothing is owed. Must be called while nothing is in flight.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.answers.owed_releases().is_empty() {
            return false;
        }
        for done in self.drains.drain(..) {
            // An error means that nobody waits any more.
            let _ = done.send(());
        }
        self.is_closed
    }

    /// Returns whether more messages wait than may wait.
    pub(super) fn are_too_many(&self) -> bool {
        self.inbox.len() > MAX_QUEUED
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(super) fn answers(&self) -> &Answers<R> {
        &self.answers
    }

    pub(super) fn answers_mut(&mut self) -> &mut Answers<R> {
        &mut self.answers
    }

    fn handle_received(&mut self, mut handle: impl FnMut(&mut Answers<R>, Command, Origin<R>)) {
        for message in self.received.drain(..) {
            if message.is_release() {
                self.counters.note_taken();
            }
            match message {
                Message::Request(command, origin) => handle(&mut self.answers, command, origin),
                Message::Drain(done) => self.drains.push(done),
            }
        }
    }
}

impl<R: Requester> Drop for Requests<R> {
    /// The runtime may end before the lane does. Releases that were not sent stay counted, as those
    /// in flight do, unless the node cannot hold their key.
    fn drop(&mut self) {
        let received = std::mem::take(&mut self.received).into_iter();
        let queued = std::iter::from_fn(|| self.inbox.try_recv().ok());
        for message in received.chain(queued) {
            if message.is_release()
                && let Message::Request(_, origin) = message
                && !origin.requester.set_requests().was_sent(self.node)
            {
                self.counters.note_taken();
            }
        }
    }
}
