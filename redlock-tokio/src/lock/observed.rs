use std::sync::{Arc, atomic::Ordering};

use redlock_core::Timestamp;

use crate::{
    LockError, LockGuard,
    engine::lease_cell::{Client, LeaseRequest},
    key::KeySet,
    observer::{Event, LockChange, Subject},
};

/// A request whose end observers do not know yet. Tells them that the caller has given up when it is dropped.
pub(super) struct ObservedRequest {
    client: Arc<Client>,
    pub(super) subject: Arc<Subject>,
    since: Timestamp,
    is_over: bool,
}

/// Returns how observers know a request, if there are any.
pub(super) fn subject(
    client: &Client,
    keys: &KeySet,
    label: Option<&'static str>,
) -> Option<Arc<Subject>> {
    (!client.observers.is_empty()).then(|| {
        Arc::new(Subject {
            request: client.observed.fetch_add(1, Ordering::Relaxed),
            label,
            keys: keys.clone(),
        })
    })
}

impl ObservedRequest {
    /// Tells the observers, if there are any.
    pub(super) fn begin(
        client: &Arc<Client>,
        request: &LeaseRequest,
        now: Timestamp,
    ) -> Option<Box<Self>> {
        let subject = Arc::clone(request.subject.as_ref()?);
        let observed = Box::new(Self {
            client: Arc::clone(client),
            subject,
            since: now,
            is_over: false,
        });
        observed.tell(now, LockChange::Requested);
        Some(observed)
    }

    /// Tells the observers of a failure. The lease has told them of a success.
    pub(super) fn end(mut self, result: &Result<LockGuard, LockError>) {
        self.is_over = true;
        if let Err(error) = result {
            let now = self.client.clock.now();
            let change = LockChange::Failed {
                error: error.clone(),
                waited: now.saturating_duration_since(self.since),
            };
            self.tell(now, change);
        }
    }

    fn tell(&self, now: Timestamp, change: LockChange) {
        let event = Event::of_lock(now, &self.subject, change);
        self.client.observers.tell(&event);
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        if !self.is_over {
            let now = self.client.clock.now();
            let waited = now.saturating_duration_since(self.since);
            self.tell(now, LockChange::Cancelled { waited });
        }
    }
}
