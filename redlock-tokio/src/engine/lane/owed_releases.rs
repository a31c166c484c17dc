use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redlock_core::{NodeId, Timestamp};
use tokio::time::Instant;

use super::{
    batch::{Batch, Purpose},
    counters::Counters,
    release_terms::ReleaseTerms,
    requester::Requester,
};
use crate::node::{Answer, Command, Vote};

/// How long after a failed delivery the next is tried, if nothing else shows that the node is back.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The most releases that are remembered. Beyond it the oldest go.
const MAX_OWED: usize = 100_000;

/// Releases that could not be delivered yet, oldest first.
///
/// A node that was out of reach may hold keys of ours, set by requests whose answers were lost.
/// Each of them would keep the others waiting until it expires; only then is its release forgotten.
pub(super) struct OwedReleases<R> {
    node: NodeId,
    queue: VecDeque<OwedRelease<R>>,
    next_try: Option<Instant>,
    counters: Arc<Counters>,
}

struct OwedRelease<R> {
    command: Command,
    terms: ReleaseTerms<R>,
}

impl<R: Requester> OwedReleases<R> {
    pub(super) fn new(node: NodeId, counters: Arc<Counters>) -> Self {
        Self {
            node,
            queue: VecDeque::new(),
            next_try: None,
            counters,
        }
    }

    /// Remembers a release if it must be sent again, after the given answer to it.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        release: Command,
        purpose: &Purpose<R>,
        answer: &Answer,
    ) {
        let mut terms = match purpose {
            Purpose::OwedRelease(terms) => terms.clone(),
            Purpose::Request(origin) => ReleaseTerms {
                // A request that left earlier may still set or extend the key, to live this long.
                expires_at: now.saturating_add(origin.requester.ttl().as_duration()),
                delivered: false,
                requester: origin.requester.clone(),
            },
        };
        terms.delivered |= answer.is_ok();
        match answer {
            Ok(Vote::Granted) => return,
            Ok(Vote::Denied) if !terms.requester.set_requests().is_unanswered(self.node) => return,
            Ok(_) | Err(_) => {}
        }
        if self.queue.len() == MAX_OWED {
            self.queue.pop_front();
            self.abandon();
        }
        self.queue.push_back(OwedRelease {
            command: release,
            terms,
        });
        let later = Instant::now() + RETRY_AFTER;
        match purpose {
            // The last attempt failed, so the rest waits too: a node that refuses releases must
            // not be asked without a pause.
            Purpose::OwedRelease(_) => self.next_try = Some(later),
            Purpose::Request(_) => {
                self.next_try.get_or_insert(later);
            }
        }
        self.count();
    }

    /// Forgets releases whose keys have expired by themselves. (One with a long ttl can keep
    /// younger ones with short ttls behind it from being forgotten; those attempts fail then.)
    pub(super) fn forget_expired(&mut self, now: Timestamp) {
        while let Some(oldest) = self.queue.front()
            && oldest.terms.expires_at <= now
        {
            if !oldest.terms.delivered {
                self.abandon();
            }
            self.queue.pop_front();
        }
        self.count();
    }

    /// Takes up to `most` releases to deliver, if it is time to try.
    pub(super) fn take_due(&mut self, most: usize) -> Batch<R> {
        let is_due = self.next_try.is_some_and(|at| at <= Instant::now());
        let count = if is_due {
            self.queue.len().min(most)
        } else {
            0
        };
        let mut batch = Batch::with_capacity(count);
        for OwedRelease { command, terms } in self.queue.drain(..count) {
            batch.push(command, Purpose::OwedRelease(terms));
        }
        self.count();
        batch
    }

    /// Lets everything be tried at once: the node may be back.
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

    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Counts a release as taken from the queue.
    pub(super) fn note_taken(&self) {
        self.counters.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a release that was never delivered.
    fn abandon(&self) {
        self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&mut self) {
        if self.queue.is_empty() {
            self.next_try = None;
        }
        self.counters
            .owed
            .store(self.queue.len(), Ordering::Relaxed);
    }
}
