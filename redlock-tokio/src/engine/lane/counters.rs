use redlock_core::Operation;

use super::limits::{MAX_BEHIND, MAX_WAITING, MAX_WAITING_LARGE, SMALL};
use crate::{
    node::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

/// How much waits for a lane's node, and where its undelivered releases are.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The keys of the requests that the lane has neither sent nor answered yet.
    waiting: AtomicUsize,
    /// Releases that the lane has neither sent nor answered yet.
    pub(super) queued: AtomicUsize,
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

    /// Returns how many releases were not delivered yet, or never will be. A release counts even if the request to set its
    /// key still waits before it.
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

fn is_release(command: &Command) -> bool {
    matches!(command.operation(), Operation::Release { .. })
}
