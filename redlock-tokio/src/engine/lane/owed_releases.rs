use std::{collections::VecDeque, sync::Arc, time::Duration};

use redlock_core::{NodeId, OwedRelease, Timestamp};
use tokio::time::Instant;

use super::{
    batch::{Batch, Purpose},
    counters::Counters,
    handle::Requester,
    in_flight::InFlight,
    limits::MAX_BATCH,
};
use crate::{
    engine::shrink,
    node::{Answer, Command, Session, reply_of},
    sync::atomic::Ordering,
};

/// How long after a failed delivery the next is tried, if nothing else shows that the node is back.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The most releases that are remembered. Beyond that, the oldest are dropped.
const MAX_OWED: usize = 100_000;

/// Releases that could not be delivered yet, oldest first.
///
/// A node that was out of reach may hold keys of ours, because it carried out requests whose answers
/// were lost. Each such key would block the other clients until it expires. Only then is its release
/// forgotten.
pub(super) struct OwedReleases {
    node: NodeId,
    queue: VecDeque<(Command, Owed)>,
    next_try: Option<Instant>,
    counters: Arc<Counters>,
}

/// A release that the node is owed, and for whom.
#[derive(Debug)]
pub(super) struct Owed {
    /// Until when, and after which replies.
    release: OwedRelease,
    /// Knows the requests to set the key that were sent.
    pub(super) requester: Arc<dyn Requester>,
}

impl OwedReleases {
    pub(super) fn new(node: NodeId, counters: Arc<Counters>) -> Self {
        Self {
            node,
            queue: VecDeque::new(),
            next_try: None,
            counters,
        }
    }

    /// Takes the answer to a release. Remembers the release if the node is still owed it.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        command: Command,
        purpose: &Purpose,
        answer: &Answer,
    ) {
        let requester = purpose.requester();
        let token = command.operation().token();
        let requests = requester.set_requests().state(self.node, token);
        let reply = reply_of(answer, now);
        let release = match purpose {
            Purpose::OwedRelease(owed) => owed.release.after_next(requests, reply),
            Purpose::Request(_) => OwedRelease::after_first(now, requester.ttl(), requests, reply),
        };
        let Some(release) = release else { return };
        let requester = Arc::clone(requester);
        self.push(command, Owed { release, requester });
        let later = Instant::now() + RETRY_AFTER;
        match purpose {
            // The last attempt failed, so the other releases wait too: a node that refuses releases
            // must not be asked without a pause.
            Purpose::OwedRelease(_) => self.next_try = Some(later),
            Purpose::Request(_) => {
                self.next_try.get_or_insert(later);
            }
        }
    }

    /// Forgets releases whose keys have expired by themselves. (A release with a long ttl can stand
    /// before releases with short ttls. Those are then sent although their keys have expired.)
    pub(super) fn forget_expired(&mut self, now: Timestamp) {
        while let Some((_, oldest)) = self.queue.front()
            && oldest.release.has_expired(now)
        {
            if !oldest.release.was_delivered() {
                self.note_abandoned();
            }
            self.queue.pop_front();
        }
        self.note_length();
    }

    /// Sends the releases that are due, unless the node is silent or busy.
    pub(super) fn send_due(&mut self, in_flight: &mut InFlight, session: &mut dyn Session) {
        if !in_flight.is_silent() && in_flight.has_room() {
            in_flight.send(session, self.take_due());
        }
    }

    /// Takes a batch of releases to deliver, if it is time to try.
    fn take_due(&mut self) -> Batch {
        let is_due = self.next_try.is_some_and(|at| at <= Instant::now());
        let mut batch = Batch::default();
        while is_due
            && batch.keys() < MAX_BATCH
            && let Some((command, owed)) = self.queue.pop_front()
        {
            batch.push(command, Purpose::OwedRelease(owed));
        }
        self.note_length();
        batch
    }

    /// Makes all releases due at once: the node may be back.
    pub(super) fn become_due(&mut self) {
        self.next_try = (!self.queue.is_empty()).then(Instant::now);
    }

    /// Returns when to try next, if anything is owed.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.next_try
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn push(&mut self, command: Command, owed: Owed) {
        if self.queue.len() == MAX_OWED {
            self.queue.pop_front();
            self.note_abandoned();
        }
        self.queue.push_back((command, owed));
        self.note_length();
    }

    fn note_abandoned(&self) {
        self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    fn note_length(&mut self) {
        if self.queue.is_empty() {
            self.next_try = None;
        }
        shrink::deque(&mut self.queue);
        self.counters
            .owed
            .store(self.queue.len(), Ordering::Relaxed);
    }
}
