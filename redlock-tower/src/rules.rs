use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use redlock_tokio::{Lock, LockError, LockGuard, LockOptions, Redlock};

use crate::{Holding, LockRequest, OnCancel, OnLost, telemetry::Telemetry};

/// What all calls behind a layer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) redlock: Redlock,
    pub(crate) options: LockOptions,
    pub(crate) prefix: Arc<[u8]>,
    pub(crate) on_lost: OnLost,
    pub(crate) on_cancel: OnCancel,
    pub(crate) fail_open: bool,
    pub(crate) max_waiters_total: usize,
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) telemetry: Telemetry,
}

impl Rules {
    pub(crate) fn new(redlock: Redlock) -> Self {
        Self {
            redlock,
            options: LockOptions::new(),
            prefix: Arc::default(),
            on_lost: OnLost::default(),
            on_cancel: OnCancel::default(),
            fail_open: false,
            max_waiters_total: usize::MAX,
            waiting: Arc::default(),
            telemetry: Telemetry::new("default"),
        }
    }

    /// Makes a lock of what a request wants.
    pub(crate) fn lock(&self, wanted: LockRequest) -> Lock {
        let LockRequest { keys, options } = wanted.prefixed(&self.prefix);
        let options = options.or(self.options);
        let mut keys = keys.into_iter();
        match (keys.next(), keys.len()) {
            (Some(key), 0) => self.redlock.lock(key).options(options),
            (first, _) => self
                .redlock
                .lock_all(first.into_iter().chain(keys))
                .options(options),
        }
    }

    /// Makes of a guard what a call holds.
    pub(crate) fn hold(&self, guard: LockGuard) -> Holding {
        Holding::new(guard, self.on_lost, self.on_cancel, self.telemetry.hold())
    }

    /// Returns whether calls that get no lock for this reason run without: not after a shutdown, nor
    /// where the nodes were merely slow.
    pub(crate) fn goes_without(&self, error: &LockError) -> bool {
        let is_outage = matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        );
        self.fail_open && is_outage
    }

    /// Takes a place among those who wait, unless too many do.
    pub(crate) fn enter(&self) -> Result<Place, LockError> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.waiting));
        if waiting < self.max_waiters_total {
            Ok(place)
        } else {
            Err(LockError::QueueFull {
                waiting,
                limit: self.max_waiters_total,
            })
        }
    }
}

/// A place among those who wait for any lock of a layer.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
