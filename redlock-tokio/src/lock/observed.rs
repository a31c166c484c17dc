use std::sync::{Arc, atomic::Ordering};

use redlock_core::Timestamp;

use crate::{
    LockError,
    engine::requests::{Client, LeaseRequest, Terms},
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

/// Makes a request, with how observers know it, if there are any. `label` is set for this lock alone.
#[inline]
pub(super) fn request(
    client: &Client,
    keys: KeySet,
    terms: Arc<Terms>,
    label: Option<&'static str>,
) -> LeaseRequest {
    let label = label.or(client.defaults.label_if_set());
    let subject = (!client.observers.is_empty()).then(|| {
        Arc::new(Subject {
            request: client.observed.fetch_add(1, Ordering::Relaxed),
            label,
            keys: keys.clone(),
        })
    });
    LeaseRequest {
        subject,
        keys,
        terms,
        label,
    }
}

/// Ends a request that has its lock. The lease has told the observers.
#[inline]
pub(super) fn succeed(observed: &mut Option<Box<ObservedRequest>>) {
    if let Some(mut observed) = observed.take() {
        observed.is_over = true;
    }
}

/// Tells the observers that a request has failed, if there are any. Returns the error.
pub(super) fn fail(observed: &mut Option<Box<ObservedRequest>>, error: LockError) -> LockError {
    if let Some(mut observed) = observed.take() {
        observed.is_over = true;
        let now = observed.client.clock.now();
        let change = LockChange::Failed {
            error: error.clone(),
            waited: now.saturating_duration_since(observed.since),
        };
        observed.tell(now, change);
    }
    error
}

impl ObservedRequest {
    /// Tells the observers, if there are any.
    #[inline]
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

    fn tell(&self, now: Timestamp, change: LockChange) {
        let event = Event::of_lock(now, &self.subject, change);
        self.client.tell(event);
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
