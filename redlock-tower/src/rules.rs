use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlock_tokio::{Lock, LockError, LockOptions, OptionsError, Redlock, WaiterLimit};

use crate::{
    KeyRejection, LockRequest, OnCancel, OnLost,
    fail_open::FailOpen,
    lock_request::{Access, Keys},
    telemetry::{Share, Telemetry},
};

/// How many keys a call may want by default. A call that a client makes expensive costs each node 16 keys at most.
const MAX_KEYS: usize = 16;

/// The options of a layer that do not depend on its types.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) redlock: Redlock,
    pub(crate) options: LockOptions,
    /// How many calls with one key may run at once, if more than one.
    pub(crate) permits: Option<usize>,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) on_lost: OnLost,
    pub(crate) on_cancel: OnCancel,
    pub(crate) fail_open: Option<FailOpen>,
    pub(crate) max_waiters_total: usize,
    pub(crate) max_keys: usize,
    /// How many calls wait behind others for their turn, in all services of the layer.
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) telemetry: Telemetry,
}

impl Rules {
    pub(crate) fn new(redlock: Redlock) -> Self {
        Self {
            redlock,
            options: LockOptions::new(),
            permits: None,
            prefix: Box::default(),
            on_lost: OnLost::default(),
            on_cancel: OnCancel::default(),
            fail_open: None,
            max_waiters_total: usize::MAX,
            max_keys: MAX_KEYS,
            waiting: Arc::default(),
            telemetry: Telemetry::new("default"),
        }
    }

    /// Returns a request that does not want too many keys, and does not share more than one, or one in two ways.
    pub(crate) fn checked(&self, wanted: LockRequest) -> Result<LockRequest, KeyRejection> {
        if wanted.keys.are_more_than(self.max_keys) {
            return Err(KeyRejection::TooManyKeys {
                limit: self.max_keys,
            });
        }
        let has_permits = wanted.permits.or(self.permits).is_some();
        match wanted.access {
            Some(_) if has_permits => Err(KeyRejection::layer(OptionsError::PermitsAndReaders)),
            Some(Access::Read) if wanted.keys.are_several() => {
                Err(KeyRejection::layer("reading is for requests with one key"))
            }
            None if has_permits && wanted.keys.are_several() => {
                Err(KeyRejection::layer("permits are for requests with one key"))
            }
            _ => Ok(wanted),
        }
    }

    /// Returns the lock that a request wants, and its keys.
    pub(crate) fn lock(&self, wanted: LockRequest) -> (Lock, Keys) {
        let LockRequest {
            keys,
            permits,
            access,
            options,
        } = wanted.prefix(&self.prefix);
        let lock = match (keys.only(), permits.or(self.permits), access) {
            (Some(key), Some(permits), _) => self.redlock.semaphore(key, permits).acquire(),
            (Some(key), None, Some(Access::Read)) => self.redlock.rw_lock(key).read(),
            (Some(key), None, Some(Access::Write)) => self.redlock.rw_lock(key).write(),
            (Some(key), None, None) => self.redlock.lock(key),
            (None, _, _) => self.redlock.lock_all(keys.iter()),
        };
        let of_layer = match access {
            // A layer that is fenced means its writers.
            Some(Access::Read) => self.options.fenced(false),
            _ => self.options,
        };
        let options = options.or(of_layer);
        let options = match self.fail_open {
            // The state of the nodes that is known can be out of date. A call runs without a lock only after a full
            // attempt.
            Some(_) => options.fail_fast(false),
            None => options,
        };
        (lock.options(options), keys)
    }

    /// Returns the attributes of a call that wants this in metrics and logs.
    pub(crate) fn telemetry_of(&self, wanted: &LockRequest) -> Telemetry {
        let share = match (wanted.access, wanted.permits.or(self.permits)) {
            (Some(Access::Read), _) => Share::Reader,
            (Some(Access::Write), _) => Share::Writer,
            (None, Some(_)) => Share::Permit,
            (None, None) => Share::Exclusive,
        };
        Telemetry {
            share,
            ..self.telemetry
        }
    }

    /// Returns how long one more waiter would expect to wait for these keys.
    pub(crate) fn expected_wait(&self, keys: &Keys) -> Option<Duration> {
        let waits = keys
            .iter()
            .filter_map(|key| self.redlock.expected_wait(key));
        waits.max()
    }

    /// Returns the rules by which a call goes on without a lock after this error: not after a shutdown, nor if
    /// the nodes were only slow, or this process asked too much of them.
    pub(crate) fn fail_open(&self, error: &LockError) -> Option<&FailOpen> {
        let is_outage = matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        );
        self.fail_open.as_ref().filter(|_| is_outage)
    }

    /// Counts one more call that waits behind another one, unless too many do so already.
    pub(crate) fn enter_queue(&self) -> Result<QueuePlace, LockError> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = QueuePlace(Arc::clone(&self.waiting));
        if waiting < self.max_waiters_total {
            Ok(place)
        } else {
            Err(LockError::QueueFull {
                waiting,
                limit: self.max_waiters_total,
                limited_by: WaiterLimit::Total,
            })
        }
    }
}

/// One waiter of a layer, for any key. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct QueuePlace(Arc<AtomicUsize>);

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
