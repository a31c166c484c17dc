use std::sync::atomic::{AtomicU64, Ordering};

/// When the latest hold began that was reported, in nanoseconds of the workers' clock.
#[derive(Debug, Default)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    pub(crate) fn note(&self, began: u64) {
        self.0.fetch_max(began, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
