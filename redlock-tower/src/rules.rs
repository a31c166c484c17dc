use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures::FutureExt;
use redlock_tokio::{
    Lock, LockError, LockFuture, LockGuard, LockOptions, Redlock, WaiterLimit, errors::OptionsError,
};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::{
    CallError, KeyRejection, LockRequest, OnCancel, OnLost, fail_open::FailOpen,
    lock_request::Access,
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
        let wanted = wanted.prefix(&self.prefix);
        let waiting = self.wait(self.lock(&wanted).into_future());
        let error = match waiting.instrument(span).await {
            Ok(guard) => return Ok(Some(guard)),
            Err(error) => error,
        };
        // A shutdown, slow nodes, and nodes of which this process asks too much are no outage.
        let is_outage = matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        );
        if let Some(fail_open) = self.fail_open.as_ref().filter(|_| is_outage) {
            self.redlock.note_fail_open(self.label);
            fail_open.warn(self.label, &error);
            return Ok(None);
        }
        let expected = |key| self.redlock.expected_wait(key);
        Err(CallError::from(error).expecting(|| wanted.keys().filter_map(expected).max()))
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
        let limit = self.max_keys;
        let mut different = BTreeSet::new();
        // Ends at the first key too many.
        let is_too_many = |key| different.insert(key) && different.len() > limit;
        if wanted.keys.len() > limit && wanted.keys().any(is_too_many) {
            return Err(KeyRejection::TooManyKeys { limit });
        }
        let is_single = wanted.keys.len() <= 1;
        let has_permits = wanted.permits.or(self.permits).is_some();
        match wanted.access {
            Some(_) if has_permits => Err(KeyRejection::layer(OptionsError::PermitsAndReaders)),
            Some(Access::Read) if !is_single => {
                Err(KeyRejection::layer("reading is for requests with one key"))
            }
            None if has_permits && !is_single => {
                Err(KeyRejection::layer("permits are for requests with one key"))
            }
            _ => Ok(wanted),
        }
    }

    /// Returns the lock that a request wants.
    fn lock(&self, wanted: &LockRequest) -> Lock {
        let permits = wanted.permits.or(self.permits);
        let lock = match (&wanted.keys[..], permits, wanted.access) {
            ([key], Some(permits), _) => self.redlock.semaphore(key, permits).acquire(),
            ([key], None, Some(Access::Read)) => self.redlock.rw_lock(key).read(),
            ([key], None, Some(Access::Write)) => self.redlock.rw_lock(key).write(),
            ([key], None, None) => self.redlock.lock(key),
            (keys, _, _) => self.redlock.lock_all(keys),
        };
        let of_layer = match wanted.access {
            // A layer that is fenced means its writers.
            Some(Access::Read) => self.options.fenced(false),
            _ => self.options,
        };
        let options = wanted.options.or(of_layer);
        let options = match self.fail_open {
            // The state of the nodes that is known can be out of date. A call runs without a lock only after a full
            // attempt.
            Some(_) => options.fail_fast(false),
            None => options,
        };
        lock.options(options)
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
