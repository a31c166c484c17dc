//! What a client wants of a node, until the lane of the node takes it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    task::{Context, Poll, Waker},
    time::Duration,
};

use redlock_core::{NodeId, Operation, Timestamp};
use tokio::sync::oneshot;

use super::{
    beats::Asked,
    handle::{Question, ReplyTo, is_release},
    in_flight::{Batch, MAX_BATCH, Purpose},
};
use crate::{Key, NodeError, engine::shrink, node::Command};

/// The most keys of a small request. That is as many as one request of a layer has by default.
const SMALL: usize = 16;

/// How many keys may wait for a node that is slower than a majority of the others: a second of work for one that takes
/// nearly its whole timeout for each batch.
const MAX_BEHIND: usize = 16 * MAX_BATCH;

/// How many keys may wait for a node. Without this limit they would be more and more if a node
/// answers, but more slowly than it is asked.
const MAX_WAITING: usize = 512 * MAX_BATCH;

/// Likewise, for large requests. (It is work for about two seconds where one client and its five servers
/// share two processors: less than a caller waits by default.)
const MAX_WAITING_LARGE: usize = MAX_WAITING / 2;

/// How long a request for a new lock may wait until it is sent.
pub(crate) const MOST_WAIT: Duration = Duration::from_secs(1);

/// The requests to a node that its lane has not taken yet. The engine has one for each node.
pub(crate) struct Outbox {
    node: NodeId,
    backlog: Backlog,
    /// The requests about lines.
    lines: Vec<Asked>,
    questions: Vec<Question>,
    /// The callers that wait until nothing is in flight or owed.
    drains: Vec<oneshot::Sender<()>>,
    /// The keys for which the node has called the process, and which nobody waits for.
    pub(crate) unwanted: BTreeSet<Key>,
    /// The lane, while it waits for something to do.
    lane: Option<Waker>,
    /// The client is gone, so nothing more will come.
    is_closed: bool,
    /// The lane has ended, with its runtime.
    is_abandoned: bool,
    /// The releases that it will not send, of keys that the node may hold.
    lost_releases: usize,
}

/// The lane has ended with its runtime, so the request will not be sent.
pub(crate) struct LaneEnded;

/// What a lane takes to send it.
pub(super) struct Taken {
    pub(super) batch: Batch,
    /// What has waited for too long, and why.
    pub(super) refused: Vec<Request>,
    pub(super) why_late: NodeError,
    pub(super) lines: Vec<Asked>,
    pub(super) questions: Vec<Question>,
    /// Whether more commands wait.
    pub(super) has_more: bool,
}

impl Outbox {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            backlog: Backlog::default(),
            lines: Vec::new(),
            questions: Vec::new(),
            drains: Vec::new(),
            unwanted: BTreeSet::new(),
            lane: None,
            is_closed: false,
            is_abandoned: false,
            lost_releases: 0,
        }
    }

    // The client.

    pub(crate) fn send(&mut self, command: Command, reply_to: ReplyTo) -> Result<(), LaneEnded> {
        if let ended @ Err(_) = self.check() {
            self.note_lost(&(command, reply_to));
            return ended;
        }
        self.backlog.push(command, reply_to);
        Ok(())
    }

    pub(crate) fn send_to_line(&mut self, asked: Asked) {
        // If the runtime has ended, the caller learns of that by other ways.
        if self.check().is_ok() {
            self.lines.push(asked);
        }
    }

    pub(super) fn ask(&mut self, question: Question) -> Result<(), LaneEnded> {
        self.check()?;
        self.questions.push(question);
        Ok(())
    }

    /// Has the lane answer when nothing is in flight or owed.
    pub(super) fn drain(&mut self, done: oneshot::Sender<()>) -> Result<(), LaneEnded> {
        self.check()?;
        self.drains.push(done);
        Ok(())
    }

    /// Notes that the client is gone. Returns the lane, which may end.
    pub(crate) fn close(&mut self) -> Option<Waker> {
        self.is_closed = true;
        self.lane_to_wake()
    }

    /// Returns the lane if it is to be woken, since it waits and something has come.
    pub(crate) fn lane_to_wake(&mut self) -> Option<Waker> {
        self.lane.take()
    }

    fn check(&self) -> Result<(), LaneEnded> {
        if self.is_abandoned {
            Err(LaneEnded)
        } else {
            Ok(())
        }
    }

    /// Returns whether too much waits to add the request if other nodes are enough.
    pub(crate) fn is_behind(&self, command: &Command) -> bool {
        may_be_left_out(command) && self.backlog.keys >= MAX_BEHIND
    }

    /// Returns whether too much waits already to add the request.
    pub(crate) fn is_too_much(&self, command: &Command) -> bool {
        let limit = if command.key_count() > SMALL {
            MAX_WAITING_LARGE
        } else {
            MAX_WAITING
        };
        may_be_left_out(command) && self.backlog.keys >= limit
    }

    /// Returns how many releases were not sent yet, or never will be. A release counts even if the request to set its key still
    /// waits before it.
    pub(crate) fn releases(&self) -> usize {
        self.backlog.releases + self.lost_releases
    }

    // The lane.

    /// Waits until there is something to send, somebody to be told that nothing is left, or the end of the client. Returns
    /// those to be told, and whether the client is gone.
    pub(super) fn poll_news(
        &mut self,
        cx: &Context<'_>,
        knows_end: bool,
    ) -> Poll<(Vec<oneshot::Sender<()>>, bool)> {
        let has_ended = self.is_closed && !knows_end;
        if self.has_requests() || !self.drains.is_empty() || has_ended {
            return Poll::Ready((mem::take(&mut self.drains), self.is_closed));
        }
        if !self
            .lane
            .as_ref()
            .is_some_and(|it| it.will_wake(cx.waker()))
        {
            // The waker of a task of the runtime, and not one of the user.
            self.lane = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.backlog.is_empty() || !self.lines.is_empty() || !self.questions.is_empty()
    }

    /// Takes the next batch, either of small requests or of large ones, and all that concerns lines.
    pub(super) fn take_batch(&mut self, now: Timestamp) -> Taken {
        let why_late = self.backlog.why_late();
        let turn = self.backlog.next_turn();
        let mut batch = Batch::for_commands(self.backlog.len());
        let mut refused = Vec::new();
        while !batch.is_full()
            && refused.len() < MAX_BATCH
            && let Some((command, origin)) = self.backlog.pop(turn)
        {
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
        Taken {
            batch,
            refused,
            why_late,
            // There may have been very many of them.
            lines: mem::take(&mut self.lines),
            questions: mem::take(&mut self.questions),
            has_more: !self.backlog.is_empty(),
        }
    }

    /// Takes all requests.
    pub(super) fn take_all(&mut self) -> (Vec<Question>, Vec<Asked>, Vec<Request>) {
        let requests = self.backlog.take_all().collect();
        let (questions, lines) = (mem::take(&mut self.questions), mem::take(&mut self.lines));
        (questions, lines, requests)
    }

    /// Notes that the lane has ended with its runtime. Releases that were not sent stay counted, as those in flight do, unless
    /// the node cannot hold their key. Returns what is left.
    pub(super) fn abandon(&mut self) -> impl Sized + use<> {
        self.is_abandoned = true;
        let (questions, lines, requests) = self.take_all();
        for request in &requests {
            self.note_lost(request);
        }
        (questions, lines, requests, mem::take(&mut self.drains))
    }

    fn note_lost(&mut self, (command, origin): &Request) {
        let is_lost = is_release(command) && origin.set_requests.was_sent(self.node);
        self.lost_releases += usize::from(is_lost);
    }
}

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
    /// The keys of all requests.
    keys: usize,
    releases: usize,
}

pub(super) type Request = (Command, ReplyTo);

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
        self.keys += command.key_count();
        self.releases += usize::from(is_release(&command));
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
        let (command, reply_to) = match turn {
            Turn::Urgent => urgent().or_else(|| self.small.pop_front()),
            Turn::Small => self.small.pop_front().or_else(urgent),
            Turn::Large => self.large.pop_front(),
        }?;
        self.keys -= command.key_count();
        self.releases -= usize::from(is_release(&command));
        Some((command, reply_to))
    }

    fn take_all(&mut self) -> impl Iterator<Item = Request> + use<> {
        let all = mem::take(self);
        let urgent = all.urgent.into_values();
        urgent.chain(all.small).chain(all.large)
    }

    /// Returns why requests that have waited for too long are refused: the node cannot do all that is asked of it, or this
    /// process did not run for a while.
    fn why_late(&self) -> NodeError {
        if self.keys >= MAX_BATCH {
            NodeError::Overloaded
        } else {
            NodeError::TimedOut(MOST_WAIT)
        }
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

/// A command that keeps a lock or ends it is never too much.
fn may_be_left_out(command: &Command) -> bool {
    let operation = command.operation();
    matches!(
        operation,
        Operation::Acquire { .. } | Operation::Probe { .. }
    )
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
