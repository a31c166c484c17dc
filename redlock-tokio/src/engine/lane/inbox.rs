use std::{
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use futures::FutureExt;
use redlock_core::{Eligibility, NodeId};
use tokio::sync::oneshot;

use super::{
    answers::Answers,
    beats::{Asked, Beats},
    handle::{Counters, Question},
    in_flight::Batch,
};
use crate::{Clock, NodeError, engine::requests::Link, foreign, sync::atomic::Ordering};

/// The requests of a client as a lane takes them out of its [outbox](super::Outbox).
pub(super) struct Inbox {
    link: Link,
    /// The client is gone.
    is_closed: bool,
    pub(super) answers: Answers,
    /// The lane's own requests about lines that were not sent yet.
    lines: Vec<Asked>,
    /// The callers that wait until nothing is in flight or owed.
    drains: Vec<oneshot::Sender<()>>,
    pub(super) counters: Arc<Counters>,
}

impl Inbox {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        counters: Arc<Counters>,
        beats: Beats,
        link: Link,
    ) -> Self {
        Self {
            is_closed: false,
            answers: Answers::new(node, clock, Arc::clone(&counters), beats, link.clone()),
            link,
            lines: Vec::new(),
            drains: Vec::new(),
            counters,
        }
    }

    /// Waits until there are requests to handle. Pending for ever if the client is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub(super) async fn receive(&mut self) {
        if !self.lines.is_empty() {
            return;
        }
        poll_fn(|cx| {
            let news = self
                .link
                .outbox(|outbox| outbox.poll_news(cx, self.is_closed));
            news.map(|(drains, is_closed)| {
                self.drains.extend(drains);
                self.is_closed = is_closed;
            })
        })
        .await;
    }

    /// Takes the next batch of what waits: of small requests or of large ones, and of all that concerns lines. Also takes the
    /// questions, and says whether another batch waits. Refuses requests that have waited for too long.
    pub(super) fn take_batch(&mut self) -> (Batch, Vec<Question>, bool) {
        let now = self.answers.clock.now();
        let mut taken = self.link.outbox(|outbox| {
            let taken = outbox.take_batch(now);
            self.counters.note_sent(&taken.batch);
            taken
        });
        let mut lines = mem::take(&mut self.lines);
        lines.append(&mut taken.lines);
        taken.batch.set_lines(self.answers.about_to_ask(lines));
        if !taken.refused.is_empty() {
            self.answers.refuse(taken.refused, &taken.why_late);
        }
        (taken.batch, taken.questions, taken.has_more)
    }

    /// Adds what a new connection must hear of lines before anything else.
    pub(super) fn rejoin_lines(&mut self) {
        let owed = self.answers.beats.reconnect();
        self.lines.splice(..0, owed);
    }

    /// Adds a beat if it is due.
    pub(super) fn beat(&mut self) {
        let due = self.answers.beats.next();
        self.lines.extend(due);
    }

    /// Refuses the requests that wait: they are answered and not sent. The releases among them are owed.
    pub(super) fn refuse(&mut self, cause: &NodeError) {
        let counters = &self.counters;
        let ((questions, lines, requests), releases) = self.link.outbox(|outbox| {
            let releases = outbox.releases();
            // None is missed until it counts as owed.
            counters.in_flight.fetch_add(releases, Ordering::Relaxed);
            (outbox.take_all(), releases)
        });
        for ask in questions {
            // The refusal is delivered at the first poll.
            ask(Err(cause.clone()), Eligibility::NEVER).now_or_never();
        }
        for (request, asker) in mem::take(&mut self.lines).into_iter().chain(lines) {
            self.answers.refuse_line(&request, asker);
        }
        self.answers.refuse(requests, cause);
        let in_flight = &self.counters.in_flight;
        in_flight.fetch_sub(releases, Ordering::Relaxed);
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
        let asks_nobody = !self.is_closed && self.drains.is_empty();
        let is_owed = !self.answers.owed_releases.is_empty() || !self.lines.is_empty();
        if asks_nobody || is_owed || self.link.outbox(|outbox| outbox.has_requests()) {
            return false;
        }
        for done in self.drains.drain(..) {
            // An error means that nobody waits any more.
            let _ = foreign::call(|| done.send(()));
        }
        self.is_closed
    }
}

impl Drop for Inbox {
    /// The runtime may end before the lane does.
    fn drop(&mut self) {
        self.counters.has_ended.store(true, Ordering::SeqCst);
        let left = self.link.outbox(|outbox| outbox.abandon());
        // Outside of the mutex.
        drop(left);
    }
}

/// Lets the tasks that are ready to run on this thread run first, and add their requests. The first of them has woken the lane,
/// which would otherwise send its request alone.
///
/// Unlike [`tokio::task::yield_now`], this does not make the runtime poll its sockets and timers. That
/// would cost a system call if no other task is ready.
pub(super) async fn yield_to_ready() {
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
