use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redlock_core::{Operation, Timestamp};
use tokio::time::Instant;

use super::{Batch, Counters, Purpose};
use crate::node::Command;

/// How long after a failed delivery the next is tried, if nothing else shows that the node is back.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The most releases that are remembered. Beyond it the oldest go: their keys expire first.
const MAX_DEBTS: usize = 100_000;

/// Releases that could not be delivered yet, oldest first.
///
/// A node that was out of reach may hold keys of ours, set by requests whose answers were lost.
/// Each of them would keep the others waiting until it expires; only then is its release forgotten.
pub(super) struct Debts {
    queue: VecDeque<Debt>,
    next_try: Option<Instant>,
    counters: Arc<Counters>,
}

struct Debt {
    command: Command,
    expires_at: Timestamp,
}

impl Debts {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            queue: VecDeque::new(),
            next_try: None,
            counters,
        }
    }

    /// Remembers a command that was not delivered, if it is a release; forgets others.
    pub(super) fn owe(&mut self, now: Timestamp, command: Command, purpose: &Purpose) {
        if !matches!(command.operation, Operation::Release { .. }) {
            return;
        }
        let expires_at = match purpose {
            Purpose::Debt { expires_at } => *expires_at,
            // A request that left earlier may still set or extend the key, to live this long.
            Purpose::Request(origin) => now.saturating_add(origin.cell.ttl().as_duration()),
        };
        if self.queue.len() == MAX_DEBTS {
            self.queue.pop_front();
            self.abandon();
        }
        self.queue.push_back(Debt {
            command,
            expires_at,
        });
        self.next_try
            .get_or_insert_with(|| Instant::now() + RETRY_AFTER);
        self.count();
    }

    /// Forgets releases whose keys have expired by themselves.
    pub(super) fn forget_expired(&mut self, now: Timestamp) {
        while let Some(oldest) = self.queue.front()
            && oldest.expires_at <= now
        {
            self.queue.pop_front();
            self.abandon();
        }
        self.count();
    }

    /// Takes up to `most` releases to deliver, if it is time to try.
    pub(super) fn take_due(&mut self, most: usize) -> Batch {
        let is_due = self.next_try.is_some_and(|at| at <= Instant::now());
        let count = if is_due {
            self.queue.len().min(most)
        } else {
            0
        };
        let mut batch = Batch::with_capacity(count);
        for Debt {
            command,
            expires_at,
        } in self.queue.drain(..count)
        {
            batch.push(command, Purpose::Debt { expires_at });
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
