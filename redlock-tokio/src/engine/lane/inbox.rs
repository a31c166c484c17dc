use std::{
    collections::{BTreeMap, VecDeque},
    future::{Future, pending, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use futures::FutureExt;
use redlock_core::{Eligibility, NodeId, Operation, Timestamp};
use tokio::sync::oneshot;

use super::{
    answers::Answers,
    beats::{Asked, Beats},
    handle::{Counters, Message, Question, ReplyTo, SMALL},
    in_flight::{Batch, MAX_BATCH, Purpose},
};
use crate::{
    Clock, NodeError,
    engine::{requests::Link, shrink},
    foreign,
    node::Command,
    sync::mpsc,
};

/// The requests that a lane was given and has not sent yet.
pub(super) struct Inbox {
    node: NodeId,
    messages: mpsc::UnboundedReceiver<Message>,
    backlog: Backlog,
    /// All handles are gone, and no message is left.
    is_closed: bool,
    pub(super) answers: Answers,
    /// The questions about keys that were not sent yet.
    pub(super) questions: Vec<Question>,
    /// The requests about lines that were not sent yet.
    lines: Vec<Asked>,
    /// The callers that wait until nothing is in flight or owed.
    drains: Vec<oneshot::Sender<()>>,
    pub(super) counters: Arc<Counters>,
}

impl Inbox {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        messages: mpsc::UnboundedReceiver<Message>,
        counters: Arc<Counters>,
        beats: Beats,
        link: Link,
    ) -> Self {
        Self {
            node,
            messages,
            backlog: Backlog::default(),
            is_closed: false,
            answers: Answers::new(node, clock, Arc::clone(&counters), beats, link),
            questions: Vec::new(),
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
        match self.messages.recv().await {
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
        for _ in 0..self.messages.len() {
            if let Ok(message) = self.messages.try_recv() {
                self.take_in(message);
            }
        }
    }

    /// Makes the next batch of what was received, either of small requests or of large ones, and of all that concerns lines.
    /// Refuses requests that have waited for too long. The batch is empty if nothing is left to send.
    pub(super) fn take_batch(&mut self) -> Batch {
        let now = self.answers.clock.now();
        let turn = self.backlog.next_turn();
        let mut batch = Batch::for_commands(self.backlog.len());
        let (mut refused, why_late) = (Vec::new(), self.counters.why_late());
        while !batch.is_full()
            && refused.len() < MAX_BATCH
            && let Some((command, origin)) = self.backlog.pop(turn)
        {
            self.counters.note_taken(&command);
            if origin.until <= now {
                refused.push((command, origin));
                continue;
            }
            if command.operation().sets_key() {
                origin.set_requests.note_sent(self.node);
            }
            batch.push(command, Purpose::Request(origin));
        }
        self.backlog.shrink();
        // There may have been very many of them.
        batch.set_lines(self.answers.about_to_ask(mem::take(&mut self.lines)));
        if !refused.is_empty() {
            self.answers.refuse(refused, &why_late);
        }
        batch
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

    /// Refuses the requests that were received: they are answered and not sent. The releases among
    /// them are owed.
    pub(super) fn refuse(&mut self, cause: &NodeError) {
        self.receive_waiting();
        for ask in self.questions.drain(..) {
            // The refusal is delivered at the first poll.
            ask(Err(cause.clone()), Eligibility::NEVER).now_or_never();
        }
        for (request, asker) in mem::take(&mut self.lines) {
            self.answers.refuse_line(&request, asker);
        }
        let counters = &self.counters;
        let refused = self.backlog.take_all();
        let refused = refused.inspect(|(command, _)| counters.note_taken(command));
        self.answers.refuse(refused, cause);
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
            Message::Ask(question) => self.questions.push(question),
            Message::Line(request, answer) => self.lines.push((request, answer)),
            Message::Drain(done) => self.drains.push(done),
        }
    }
}

impl Drop for Inbox {
    /// The runtime may end before the lane does. Releases that were not sent stay counted, as those
    /// in flight do, unless the node cannot hold their key.
    fn drop(&mut self) {
        let mut requests: Vec<_> = self.backlog.take_all().collect();
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Request(command, origin) = message {
                requests.push((command, origin));
            }
        }
        for (command, origin) in requests {
            if !origin.set_requests.was_sent(self.node) {
                self.counters.note_taken(&command);
            }
        }
    }
}

/// The requests that a lane has taken from its inbox and not sent yet.
///
/// Small requests and large ones wait apart, so that a lock of one key does not wait behind all locks of many keys. The
/// requests of one lease stay in order: they have the same keys, or are for one slot or a look at all slots.
///
/// Extensions go before other small requests, those of the locks that end next first. A process that asks for more than the nodes
/// can do keeps the locks that it has, and gets no new ones. An extension overtakes no earlier request of its lease on which the
/// lock rests, and after a batch that is full of extensions comes one that begins with the others.
#[derive(Default)]
struct Backlog {
    /// By the time until which they are of use, and their number.
    urgent: BTreeMap<(Timestamp, u64), Request>,
    /// How many extensions there were.
    last: u64,
    /// The last batch was full of extensions, and other small requests were left behind.
    small_are_due: bool,
    small: VecDeque<Request>,
    large: VecDeque<Request>,
    /// Large requests were left behind when small ones were taken last.
    large_are_due: bool,
}

type Request = (Command, ReplyTo);

#[derive(Clone, Copy)]
enum Turn {
    /// Extensions, then small requests.
    Urgent,
    /// Small requests, then extensions.
    Small,
    Large,
}

impl Backlog {
    fn push(&mut self, command: Command, reply_to: ReplyTo) {
        if is_small(&command) && matches!(command.operation(), Operation::Extend { .. }) {
            self.last += 1;
            let place = (reply_to.until, self.last);
            self.urgent.insert(place, (command, reply_to));
            return;
        }
        let requests = if is_small(&command) {
            &mut self.small
        } else {
            &mut self.large
        };
        requests.push_back((command, reply_to));
    }

    /// Returns the requests whose turn it is: the small ones, unless the large ones were left behind the last time.
    fn next_turn(&mut self) -> Turn {
        let has_small = !self.small.is_empty() || !self.urgent.is_empty();
        let is_large = self.large_are_due || !has_small;
        self.large_are_due = !is_large && !self.large.is_empty();
        if is_large {
            return Turn::Large;
        }
        if mem::take(&mut self.small_are_due) {
            return Turn::Small;
        }
        self.small_are_due = self.urgent.len() >= MAX_BATCH && !self.small.is_empty();
        Turn::Urgent
    }

    fn pop(&mut self, turn: Turn) -> Option<Request> {
        let mut urgent = || self.urgent.pop_first().map(|(_, request)| request);
        match turn {
            Turn::Urgent => urgent().or_else(|| self.small.pop_front()),
            Turn::Small => self.small.pop_front().or_else(urgent),
            Turn::Large => self.large.pop_front(),
        }
    }

    fn take_all(&mut self) -> impl Iterator<Item = Request> + use<> {
        let all = mem::take(self);
        let urgent = all.urgent.into_values();
        urgent.chain(all.small).chain(all.large)
    }

    fn shrink(&mut self) {
        shrink::deque(&mut self.small);
        shrink::deque(&mut self.large);
    }

    fn len(&self) -> usize {
        self.urgent.len() + self.small.len() + self.large.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A look at all slots of a semaphore is small however many there are, since it must not overtake the release of one.
fn is_small(command: &Command) -> bool {
    command.key_count() <= SMALL || command.probes_slots()
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

#[cfg(test)]
mod tests {
    use redlock_core::{Access, Nonce, Permits, Slot};

    use super::*;
    use crate::{
        client_name::ClientName,
        key::{KeySet, Prefix, SlotKeys},
    };

    #[test]
    fn a_look_at_many_slots_stays_in_order_with_the_release_of_one() {
        let (prefix, token) = (Prefix::default(), Nonce::new(7).token(1));
        let probe = Operation::Probe { token, mark: None };
        let permits = Permits::new(2 * SMALL).unwrap();
        let slots = SlotKeys::new(&prefix, b"exports", permits).unwrap();
        let all = permits.slots();
        assert!(is_small(&Command::for_slots(
            slots.keys_of(all),
            all,
            probe
        )));
        let slot = slots.get(Slot::FIRST).unwrap().clone();
        assert!(is_small(&Command::new(slot, Operation::Release { token })));
        let keys = KeySet::all(&prefix, (0..=SMALL).map(|key| key.to_string())).unwrap();
        assert!(!is_small(&Command::for_all(
            keys,
            Operation::Release { token },
            Access::Exclusive,
            &ClientName::NONE
        )));
    }
}
