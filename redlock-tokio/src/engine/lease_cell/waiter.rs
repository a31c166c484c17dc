//! A request that waits for its turn, behind other requests of this process.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use redlock_core::{AcquireFailure, Timestamp};

use super::{
    Client, Contender, End, HeldLease, LeaseCell, driving::carry_out, terms::LeaseRequest,
};
use crate::{
    engine::queue::{Entry, JoinOutcome, Refused, Ticket},
    foreign,
    sync::{Mutex, MutexGuard},
};

/// A request in the queues of its keys. It has no lease, and no node knows of it.
///
/// ```text
/// Waiting ---> Served ---> Gone
///    |                      ^
///    +-------> Ended -------+
/// ```
pub(crate) struct Waiter {
    ticket: Ticket,
    client: Arc<Client>,
    request: LeaseRequest,
    /// When the time to wait is over.
    deadline: Timestamp,
    state: Mutex<State>,
}

enum State {
    /// Its task is woken when this is over.
    Waiting(Option<Waker>),
    /// It has a lease of its own, because its turn has come, or the lock of the holder before it.
    Served(HeldLease),
    Ended(End),
    /// The task knows, or has given up.
    Gone,
}

/// How a request begins.
pub(crate) enum Begun {
    /// With a lease that asks the nodes.
    Turn(HeldLease),
    /// In the queue.
    Waiting(WaitingTask),
}

/// A waiter as its task sees it. Gives up when it is dropped.
pub(crate) struct WaitingTask(Arc<Waiter>);

/// The holder that comes next, and its task.
pub(super) struct Successor {
    pub(super) label: Option<&'static str>,
    waker: Option<Waker>,
}

/// Begins a request: asks the nodes, if no other request of this process has one of the keys. Otherwise waits in their queues.
///
/// # Errors
///
/// Fails if the request may not wait.
pub(crate) fn begin(
    client: &Arc<Client>,
    now: Timestamp,
    request: &LeaseRequest,
) -> Result<Begun, End> {
    let deadline = now.saturating_add(request.terms.policy.wait);
    let ticket = client.next_ticket();
    let (keys, policy) = (&request.keys, &request.terms.policy);
    let mut contender = None;
    let joined = client.queue.join(keys, ticket, now, policy, |entry| {
        let new = match entry {
            Entry::Turn => Contender::Lease(LeaseCell::new(client, ticket, request)),
            Entry::Line => Contender::Waiter(Waiter::new(client, ticket, request, deadline)),
        };
        contender.insert(new).clone()
    });
    match (joined, contender) {
        (Ok(JoinOutcome::Turn { backs_off }), Some(Contender::Lease(lease))) => {
            lease.update(now, |state| lease.begin(state, now, deadline, backs_off));
            Ok(Begun::Turn(HeldLease::first(lease)))
        }
        (Ok(JoinOutcome::Waiting { follow_up }), Some(Contender::Waiter(waiter))) => {
            waiter.call_back(now, deadline);
            carry_out(now, follow_up.into_iter().collect()).wake_all();
            Ok(Begun::Waiting(WaitingTask(waiter)))
        }
        (Err(Refused { refusal, follow_up }), _) => {
            carry_out(now, follow_up.into_iter().collect()).wake_all();
            Err(End::Refused(refusal))
        }
        // The queue has asked for what it says.
        _ => Err(End::GivenUp),
    }
}

impl Waiter {
    fn new(
        client: &Arc<Client>,
        ticket: Ticket,
        request: &LeaseRequest,
        deadline: Timestamp,
    ) -> Arc<Self> {
        Arc::new(Self {
            ticket,
            client: Arc::clone(client),
            request: request.clone(),
            deadline,
            state: Mutex::new(State::Waiting(None)),
        })
    }

    /// Returns whether the lock of a lease would do.
    pub(super) fn could_take_over(&self, lease: &LeaseCell) -> bool {
        self.request.could_share(lease.request())
    }

    /// Takes over the lock of its predecessor. Returns `None` if it has given up. The queue has removed it already.
    pub(super) fn take_over(&self, held: HeldLease) -> Option<Successor> {
        self.serve(held)
    }

    /// Begins the turn. Returns the lease, unless the waiter has given up. The queue has given it the turn already.
    pub(super) fn start_turn(&self) -> Option<(Arc<LeaseCell>, Timestamp)> {
        if !self.is_waiting() {
            return None;
        }
        let lease = LeaseCell::new(&self.client, self.ticket, &self.request);
        let contender = Contender::Lease(Arc::clone(&lease));
        let keys = &self.request.keys;
        self.client
            .queue
            .replace_turn(keys, self.ticket, &contender);
        let successor = self.serve(HeldLease::first(Arc::clone(&lease)))?;
        lease.wake_on_change(successor.waker);
        Some((lease, self.deadline))
    }

    /// Notes what the waiter waited for. Returns `None` if it does not wait any more.
    fn serve(&self, held: HeldLease) -> Option<Successor> {
        let mut state = self.state();
        let State::Waiting(waker) = &mut *state else {
            return None;
        };
        let waker = waker.take();
        *state = State::Served(held);
        let label = self.request.label;
        Some(Successor { label, waker })
    }

    /// Has the timers call back. Without them, the wait ends now.
    pub(super) fn call_back(self: &Arc<Self>, now: Timestamp, at: Timestamp) {
        let timers = &self.client.timers;
        if timers.wait(at, self.ticket.number(), self).is_err() {
            self.abandon(now);
        }
    }

    /// Does what is due: ends the reservation of its keys, or the wait.
    pub(super) fn handle_timeout(&self, now: Timestamp) {
        if self.deadline <= now {
            self.end(now, AcquireFailure::Contended);
        } else {
            let follow_ups = self.client.queue.expire(self.ticket, now);
            carry_out(now, follow_ups).wake_all();
        }
    }

    /// Ends the wait, because nobody would give it a turn any more.
    pub(super) fn abandon(&self, now: Timestamp) {
        self.end(now, AcquireFailure::Abandoned);
    }

    fn end(&self, now: Timestamp, failure: AcquireFailure) {
        let end = End::Exhausted {
            failure,
            attempts: 0,
        };
        let waker = {
            let mut state = self.state();
            let State::Waiting(waker) = &mut *state else {
                return;
            };
            let waker = waker.take();
            *state = State::Ended(end);
            waker
        };
        self.leave(now);
        if let Some(waker) = waker {
            foreign::call(|| waker.wake());
        }
    }

    fn give_up(&self) {
        let before = mem::replace(&mut *self.state(), State::Gone);
        match before {
            State::Waiting(_) => self.leave(self.now()),
            State::Served(held) => held.release(self.now()),
            State::Ended(_) | State::Gone => {}
        }
    }

    fn leave(&self, now: Timestamp) {
        let (keys, policy) = (&self.request.keys, &self.request.terms.policy);
        let queue = &self.client.queue;
        let follow_ups = queue.leave(keys, self.ticket, now, None, policy);
        carry_out(now, follow_ups).wake_all();
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<HeldLease, End>> {
        let mut state = self.state();
        if let State::Waiting(waker) = &mut *state {
            match waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match mem::replace(&mut *state, State::Gone) {
            State::Served(held) => Poll::Ready(Ok(held)),
            State::Ended(end) => Poll::Ready(Err(end)),
            State::Waiting(_) | State::Gone => Poll::Pending,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(super) fn now(&self) -> Timestamp {
        self.client.clock.now()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl WaitingTask {
    /// Waits for the turn, or for a lock that is handed over.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<HeldLease, End>> {
        self.0.poll(cx)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(crate) fn request(&self) -> &LeaseRequest {
        &self.0.request
    }

    /// Ends the wait, because the client is shut down.
    pub(crate) fn abandon(&self) {
        self.0.abandon(self.0.now());
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Successor {
    /// Wakes the task. Call this outside all locks.
    pub(super) fn wake(self) {
        if let Some(waker) = self.waker {
            foreign::call(|| waker.wake());
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("ticket", &self.ticket)
            .field("keys", &self.request.keys)
            .finish_non_exhaustive()
    }
}
