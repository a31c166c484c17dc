use std::{sync::Arc, time::Duration};

use super::{counters::Counters, status_board::StatusBoard};
use crate::{
    Clock, NodeState,
    observer::{Event, NodeChange, NodeEvent, Observers},
    sync::atomic::Ordering,
};

/// A node as observers know it.
pub(super) struct ObservedNode {
    observers: Observers,
    address: Arc<str>,
    clock: Clock,
    state: Option<NodeState>,
    owed: usize,
    abandoned: usize,
}

impl ObservedNode {
    pub(super) fn new(observers: Observers, address: Arc<str>, clock: Clock) -> Self {
        Self {
            observers,
            address,
            clock,
            state: None,
            owed: 0,
            abandoned: 0,
        }
    }

    pub(super) fn note_connection(&self) {
        self.tell(|| NodeChange::Connected);
    }

    pub(super) fn note_answer(&self, round_trip: Duration) {
        self.tell(|| NodeChange::Answered { round_trip });
    }

    /// Tells the observers what has changed since the last call.
    pub(super) fn look(&mut self, status: &StatusBoard, counters: &Counters) {
        if self.observers.is_empty() {
            return;
        }
        let state = status.state(self.clock.now());
        let is_news = match (&self.state, &state) {
            // It gets shorter by itself.
            (
                Some(NodeState::Quarantined { remaining: before }),
                NodeState::Quarantined { remaining },
            ) => remaining > before,
            (before, state) => before.as_ref() != Some(state),
        };
        if is_news {
            self.tell(|| NodeChange::Entered(state.clone()));
        }
        self.state = Some(state);
        let releases = counters.owed();
        if releases != self.owed {
            self.owed = releases;
            self.tell(|| NodeChange::Owed { releases });
        }
        let abandoned = counters.abandoned.load(Ordering::Relaxed);
        let releases = abandoned - self.abandoned;
        if releases > 0 {
            self.abandoned = abandoned;
            self.tell(|| NodeChange::Abandoned { releases });
        }
    }

    fn tell(&self, change: impl FnOnce() -> NodeChange) {
        if self.observers.is_empty() {
            return;
        }
        self.observers.tell(&Event::Node(NodeEvent {
            at: self.clock.now(),
            address: Arc::clone(&self.address),
            change: change(),
        }));
    }
}

impl Drop for ObservedNode {
    fn drop(&mut self) {
        self.tell(|| NodeChange::Left);
    }
}
