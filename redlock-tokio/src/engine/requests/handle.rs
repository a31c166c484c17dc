//! A request as its callers have it.

use std::{mem, sync::Arc, time::Duration};

use redlock_core::{FencingToken, Share, Slot, Status, Timestamp, Token, Ttl, Validity};

use super::{Client, Engine, RequestId, request::Request};
use crate::{NodeReports, OptionsError, TakenBy, key::KeySet, log};

/// A handle of a request, which is kept until it has ended and its last handle is gone.
pub(crate) struct Handle {
    pub(super) client: Arc<Client>,
    pub(super) id: RequestId,
    pub(super) keys: KeySet,
}

impl Handle {
    /// Returns the handle that a request has had since it was created.
    pub(super) fn first(client: &Arc<Client>, request: &Request) -> Self {
        Self {
            client: Arc::clone(client),
            id: request.id,
            keys: request.keys.clone(),
        }
    }

    /// Returns why nodes did not agree to the last extension or release, or to the last attempt to which any node has
    /// objected.
    pub(crate) fn reports(&self) -> NodeReports {
        self.read(|it| self.client.reports(it.watched.objections()))
    }

    /// Returns the client that has the key according to the last probe, and for how long.
    pub(crate) fn taken_by(&self, now: Timestamp) -> Option<TakenBy> {
        self.read(|it| {
            let (holder, until) = it.watched.taken_by()?;
            let has_end = *until < Timestamp::MAX;
            Some(TakenBy {
                holder: holder.clone(),
                remaining: has_end.then(|| until.saturating_duration_since(now)),
            })
        })
    }

    /// Returns how many processes stood before this one in the line of the key when it was last told.
    pub(crate) fn ahead(&self) -> Option<u32> {
        self.read(|it| it.watched.ahead())
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.read(|it| it.fence)
    }

    /// Checks the ttl of an extension.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<Ttl, OptionsError> {
        self.client.check_ttl(self.validity(), ttl)
    }

    /// Returns the shortest ttl, but no less than its own, by which the lock is valid for this long.
    pub(crate) fn ttl_to_last(&self, span: Duration) -> Result<Ttl, OptionsError> {
        let validity = self.validity();
        let ttl = validity.lasting(span)?.ttl().max(validity.ttl());
        self.check_ttl(ttl.as_duration())
    }

    /// Returns the ttl that the lock was acquired with.
    pub(crate) fn own_ttl(&self) -> Ttl {
        self.validity().ttl()
    }

    /// Returns how long the lock is valid after it was acquired or extended.
    fn validity(&self) -> Validity {
        self.read(|it| it.terms.config.validity)
    }

    /// Returns how often it has tried to get the lock.
    pub(crate) fn tries(&self) -> u32 {
        self.read(Request::tries)
    }

    pub(crate) fn token(&self) -> Token {
        self.read(|it| it.lease.token())
    }

    /// Returns the slot of the permit, if the lock is one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.read(|it| it.lease.slot())
    }

    /// Returns whether a writer acquired the lock.
    pub(crate) fn is_writer(&self) -> bool {
        self.keys.share() == Share::Writer
    }

    /// Returns whether the lock has one key, which nobody shares.
    pub(crate) fn has_one_owner(&self) -> bool {
        let is_alone = matches!(self.keys.share(), Share::Exclusive | Share::Writer);
        is_alone && !self.keys.has_several() && !self.is_reader()
    }

    /// Returns whether the lock is one of a reader, or of a writer that was downgraded.
    pub(crate) fn is_reader(&self) -> bool {
        self.read(|it| it.lease.is_reader())
    }

    /// Returns whether it waits for its turn in this process.
    pub(crate) fn is_waiting(&self) -> bool {
        self.read(|it| it.lease.status() == Status::New)
    }

    /// Ends the request if the lock is not held yet.
    pub(crate) fn stop_acquiring(&self) {
        let now = self.now();
        self.client
            .change(now, |engine, cx| engine.stop_acquiring(cx, self.id));
    }

    /// Logs that a task has got the lock. The line is in the span of this task.
    pub(crate) fn log_acquisition(&self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (label, token) = self.read(|it| (it.label(), it.lease.token()));
        let keys = self.client.logs_keys.then(|| self.keys.for_log());
        log::debug!(
            label,
            keys = keys.map(tracing::field::debug),
            %token,
            "a lock was acquired"
        );
    }

    pub(crate) fn id(&self) -> RequestId {
        self.id
    }

    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.client.clock.now()
    }

    /// Returns what this says of the request.
    ///
    /// # Panics
    ///
    /// Never: the request is there for as long as its handle, and changes only while the engine is locked.
    pub(super) fn read<T>(&self, ask: impl FnOnce(&Request) -> T) -> T {
        let engine = self.client.engine.lock();
        ask(engine.get(self.id).expect("the request of a handle"))
    }
}

impl Engine {
    /// Ends a request if the lock is not held yet.
    pub(super) fn stop_acquiring(&mut self, cx: super::Cx<'_>, id: RequestId) {
        self.update(cx, id, |_, request| {
            if request.is_pending() {
                request.lease.abandon();
            }
            if request.is_undecided() {
                request.lease.release(cx.now);
            }
        });
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        if let Some(request) = self.client.engine.lock().get_mut(self.id) {
            request.handles += 1;
        }
        Self {
            client: Arc::clone(&self.client),
            id: self.id,
            keys: self.keys.clone(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.id == RequestId::NONE {
            return;
        }
        let mut engine = self.client.engine.lock();
        engine.end_handle(self.id);
        let forgotten = mem::take(&mut engine.out.forgotten);
        let client = engine.out.client.take();
        // What they leave is dropped outside of the mutex.
        drop(engine);
        drop((forgotten, client));
    }
}
