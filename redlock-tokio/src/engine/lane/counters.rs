use crate::sync::atomic::{AtomicUsize, Ordering};

/// Where the undelivered releases of a lane are.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Releases that the lane has not taken from its inbox yet.
    pub(super) queued: AtomicUsize,
    /// Releases that wait for the node to come back.
    pub(super) owed: AtomicUsize,
    /// Releases that were sent and not answered yet.
    pub(super) in_flight: AtomicUsize,
    /// Releases that were never delivered: their keys have expired by themselves.
    pub(super) abandoned: AtomicUsize,
}

impl Counters {
    /// Counts a release as taken from the inbox.
    pub(super) fn note_taken(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many releases were not delivered yet, or never will be.
    pub(super) fn undelivered(&self) -> usize {
        let Self {
            queued,
            owed,
            in_flight,
            abandoned,
        } = self;
        [queued, owed, in_flight, abandoned]
            .into_iter()
            .map(|it| it.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns how many releases wait for the node to come back.
    #[cfg(feature = "test-util")]
    pub(super) fn owed(&self) -> usize {
        self.owed.load(Ordering::Relaxed)
    }

    /// Returns how many releases are on their way to the node.
    #[cfg(feature = "test-util")]
    pub(super) fn under_way(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed)
    }
}
