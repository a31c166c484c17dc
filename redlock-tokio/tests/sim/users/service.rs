//! One `Redlock` of a process, and its house rules.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_tokio::Redlock;

use crate::{requests::ServiceId, rng::Rng, services::House};

/// A `Redlock`, as its users see it.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    pub(crate) redlock: Redlock,
    pub(crate) house: House,
    /// When its shutdown began, in true time. `u64::MAX` before.
    closing: Arc<AtomicU64>,
}

impl House {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            max_waiters_total: rng.pick(&[65_536, 65_536, 3, 1]),
            max_waiters_per_key: rng.pick(&[1024, 1024, 5, 2]),
            handover_for: rng
                .pick(&[None, None, Some(0), Some(5), Some(100), Some(10_000)])
                .map(Duration::from_millis),
            poller_share: rng.pick(&[None, None, None, Some(0), Some(20), Some(100)]),
        }
    }
}

impl Service {
    pub(crate) fn new(id: ServiceId, redlock: Redlock, house: House) -> Self {
        Self {
            id,
            redlock,
            house,
            closing: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// Notes that the shutdown begins.
    pub(crate) fn close(&self, at: u64) {
        self.closing.store(at, Relaxed);
    }

    /// Returns when the shutdown began, in true time.
    pub(crate) fn closed_at(&self) -> Option<u64> {
        let at = self.closing.load(Relaxed);
        (at < u64::MAX).then_some(at)
    }
}
