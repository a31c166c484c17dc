//! A lease that several parties share: its holder, the lanes that bring replies, the timers.

mod client;
mod description;
mod driving;
mod extensions;
mod handover;
mod held_lease;
mod holders;
mod in_line;
mod inputs;
mod listeners;
mod local;
mod observed;
mod permits;
mod placed;
mod read_write;
mod state;
mod terms;
mod ticket;
mod transfer;
mod waiting;
mod watched_round;

use std::{
    fmt,
    future::poll_fn,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use redlock_core::{FencingToken, Lease, NodeId, Nonce, Quorum, Status, Timestamp, Token, Ttl};

use self::state::CellState;
pub(crate) use self::{
    client::Client,
    extensions::ExtensionOutcome,
    held_lease::HeldLease,
    listeners::listeners,
    local::RequestEnd,
    observed::Claim,
    terms::{LeaseRequest, Terms},
    transfer::adopt,
    waiting::begin,
};
pub use self::{
    description::{LocalHold, LocalLock},
    ticket::LockTicket,
};
use crate::{
    NodeReports, OptionsError, TakenBy,
    engine::{lane::SetRequests, queue::Arrival},
    foreign,
    key::KeySet,
    log,
    sync::{Mutex, MutexGuard},
};

/// A lease behind a short lock that is never held across an await.
///
/// The task that takes a reply from a node gives it to the lease at once. The task that waits for the lock is
/// woken once, when the verdict is in, or to look whether an outage has begun.
pub(crate) struct LeaseCell {
    arrival: Arrival,
    client: Arc<Client>,
    keys: KeySet,
    terms: Arc<Terms>,
    /// When the time to wait is over.
    deadline: Timestamp,
    state: Mutex<CellState>,
    /// The requests to set the keys that lanes sent for this lease.
    set_requests: SetRequests,
}

impl LeaseCell {
    /// Creates a lease that has not asked any node.
    fn new(client: &Arc<Client>, request: &LeaseRequest, deadline: Timestamp) -> Arc<Self> {
        // Its tokens are drawn when it begins. A lock that is handed over needs none.
        let lease = Lease::new(Arc::clone(&request.terms.config), Nonce::new(0));
        let state = CellState::new(lease, request);
        Arc::new(Self {
            arrival: client.next_arrival(),
            client: Arc::clone(client),
            keys: request.keys.clone(),
            terms: Arc::clone(&request.terms),
            deadline,
            state: Mutex::new(state),
            set_requests: SetRequests::default(),
        })
    }

    // For the holder, or the task that waits for the lock.

    /// Waits until the lock is held, by this request or by another one that has passed it on, or will not be held.
    pub(crate) fn poll_acquired(
        self: &Arc<Self>,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<HeldLease>, RequestEnd>> {
        let mut state = self.state();
        let polled = state.poll_acquired(cx.waker());
        if let Poll::Ready(Ok(Some(_))) = polled {
            // It waits no longer. (Clearing a deadline never fails.)
            let _ = self.client.timers.reschedule(state.due.take(), None, self);
        }
        polled
    }

    /// Wakes the task if the request fails fast and waits, to look whether a majority can still vote.
    fn wake_to_look(&self) {
        let waker = self.terms.fails_fast.then(|| self.state().waiting_task());
        if let Some(waker) = waker.flatten() {
            foreign::call(|| waker.wake());
        }
    }

    /// Returns why nodes did not agree to the last extension or release, or to the last attempt to which any node has
    /// objected.
    pub(crate) fn reports(&self) -> NodeReports {
        self.client.reports(self.state().watched.objections())
    }

    /// Returns the client that has the key according to the last probe, and for how long.
    pub(crate) fn taken_by(&self, now: Timestamp) -> Option<TakenBy> {
        let state = self.state();
        let (holder, until) = state.watched.taken_by()?;
        let has_end = *until < Timestamp::MAX;
        Some(TakenBy {
            holder: holder.clone(),
            remaining: has_end.then(|| until.saturating_duration_since(now)),
        })
    }

    /// Returns how many processes stood before this one in the line of the key when it was last told.
    pub(crate) fn ahead(&self) -> Option<u32> {
        self.state().watched.ahead()
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.state().fence
    }

    /// Returns the addresses of the nodes whose votes won the lock.
    pub(crate) fn granted_by(&self) -> Vec<Arc<str>> {
        let nodes = self.state().granted_by;
        let address = |node: NodeId| Arc::clone(&self.client.lanes[node.index()].address);
        nodes.iter().map(address).collect()
    }

    /// Checks the ttl of an extension.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<Ttl, OptionsError> {
        self.client.check_ttl(self.terms.config.validity, ttl)
    }

    /// Returns the shortest ttl, but no less than its own, by which the lock is valid for this long.
    pub(crate) fn ttl_to_last(&self, span: Duration) -> Result<Ttl, OptionsError> {
        let validity = self.terms.config.validity.lasting(span)?;
        let ttl = validity.ttl().max(self.own_ttl());
        self.check_ttl(ttl.as_duration())
    }

    /// Returns the ttl that the lock was acquired with.
    pub(crate) fn own_ttl(&self) -> Ttl {
        self.terms.config.validity.ttl()
    }

    /// Returns how often it has tried to get the lock.
    pub(crate) fn tries(&self) -> u32 {
        self.state().tries()
    }

    pub(crate) fn token(&self) -> Token {
        self.state().lease.token()
    }

    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// Returns whether the lease holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        self.state().lease.status() == Status::Held
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.client.quorum
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Logs that a task has got the lock. The line is in the span of this task.
    pub(crate) fn log_acquisition(&self) {
        log::debug!(
            label = self.label(),
            keys = self.shown_keys(),
            token = %self.token(),
            "a lock was acquired"
        );
    }

    fn label(&self) -> Option<&'static str> {
        self.state().label()
    }

    /// Returns the keys for a line of the log, if they may be logged.
    fn shown_keys(&self) -> Option<impl tracing::Value> {
        let is_allowed = self.client.logs_keys;
        is_allowed.then(|| tracing::field::debug(self.keys.for_log()))
    }

    // For the modules of this folder.

    /// Waits until the state is as wanted.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&CellState) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.state();
            let value = ready(&state);
            if value.is_none() {
                state.watch(cx.waker());
            }
            value.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, CellState> {
        self.state.lock()
    }

    pub(crate) const fn id(&self) -> u64 {
        self.arrival.number()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.client.clock.now()
    }
}

// As for `Client`.
impl UnwindSafe for LeaseCell {}
impl RefUnwindSafe for LeaseCell {}

impl fmt::Debug for LeaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseCell")
            .field("id", &self.id())
            .field("keys", self.keys())
            .finish_non_exhaustive()
    }
}
