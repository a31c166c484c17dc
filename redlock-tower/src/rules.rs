use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{
    Lock, LockError, LockFuture, LockGuard, LockOptions, Redlock, WaiterLimit, errors::OptionsError,
};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::{
    CallError, KeyRejection, LockRequest, OnCancel, OnLost,
    fail_open::FailOpen,
    lock_request::{Access, Keys},
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
    /// Counts the calls that have a lock.
    pub(crate) tasks: Option<TaskTracker>,
    /// The label of the layer, in logs and metrics.
    pub(crate) label: &'static str,
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
            tasks: None,
            label: "default",
        }
    }

    /// Waits for the lock of a call. Returns `None` if the call goes on without one, see `fail_open`.
    pub(crate) async fn acquire<E>(
        &self,
        wanted: LockRequest,
    ) -> Result<Option<LockGuard>, CallError<E>> {
        let share = self.share_of(&wanted);
        let span = tracing::debug_span!(target: "redlock", "lock_wait", label = self.label, share);
        let (lock, keys) = self.lock(wanted);
        let error = match self.wait(lock.into_future()).instrument(span).await {
            Ok(guard) => return Ok(Some(guard)),
            Err(error) => error,
        };
        if let Some(fail_open) = self.fail_open(&error) {
            self.redlock.note_fail_open(self.label);
            fail_open.warn(self.label, &error);
            return Ok(None);
        }
        Err(CallError::from(error).expecting(|| self.expected_wait(&keys)))
    }

    /// Waits for a lock. The first poll puts the call into the queue of its lock. If it has to wait behind another one
    /// there, it needs a place in this layer too, or is refused.
    async fn wait(&self, mut lock: LockFuture) -> Result<LockGuard, LockError> {
        let mut place = None;
        poll_fn(|cx| {
            let outcome = lock.poll_unpin(cx);
            if outcome.is_pending() && place.is_none() && lock.is_queued() {
                match self.enter_queue() {
                    Ok(it) => place = Some(it),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            outcome
        })
        .await
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
    fn lock(&self, wanted: LockRequest) -> (Lock, Keys) {
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

    /// Returns how a call that wants this shares its key, for its spans.
    pub(crate) fn share_of(&self, wanted: &LockRequest) -> &'static str {
        match (wanted.access, wanted.permits.or(self.permits)) {
            (Some(Access::Read), _) => "reader",
            (Some(Access::Write), _) => "writer",
            (None, Some(_)) => "permit",
            (None, None) => "exclusive",
        }
    }

    /// Returns how long one more waiter would expect to wait for these keys.
    fn expected_wait(&self, keys: &Keys) -> Option<Duration> {
        let waits = keys
            .iter()
            .filter_map(|key| self.redlock.expected_wait(key));
        waits.max()
    }

    /// Returns the rules by which a call goes on without a lock after this error: not after a shutdown, nor if
    /// the nodes were only slow, or this process asked too much of them.
    fn fail_open(&self, error: &LockError) -> Option<&FailOpen> {
        let is_outage = matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        );
        self.fail_open.as_ref().filter(|_| is_outage)
    }

    /// Counts one more call that waits behind another one, unless too many do so already.
    fn enter_queue(&self) -> Result<QueuePlace, LockError> {
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
struct QueuePlace(Arc<AtomicUsize>);

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
