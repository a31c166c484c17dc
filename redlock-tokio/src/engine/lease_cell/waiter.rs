//! A request that waits for its turn, behind other requests of this process.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use redlock_core::{AcquireFailure, Share, Timestamp};

use super::{
    Client, Contender, End, HeldLease, LeaseCell, driving::carry_out, place::Place, read_write,
    terms::LeaseRequest,
};
use crate::{
    engine::queue::{Entry, FollowUp, JoinOutcome, Ticket},
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
    pub(crate) client: Arc<Client>,
    pub(crate) request: LeaseRequest,
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

/// A request that may not wait.
pub(crate) struct Failed {
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) end: End,
}

/// A waiter as its task sees it. Gives up when it is dropped.
pub(crate) struct WaitingTask {
    pub(crate) waiter: Arc<Waiter>,
    /// Whether the task knows how the wait has ended.
    is_over: bool,
}

/// A turn that has come.
pub(super) struct StartedTurn {
    pub(super) lease: Arc<LeaseCell>,
    /// When the time to wait is over.
    pub(super) deadline: Timestamp,
    /// The task, if the lease has ended already.
    pub(super) waker: Option<Waker>,
}

/// What is to be done when a wait has ended.
pub(super) struct Ended {
    pub(super) follow_ups: Vec<FollowUp<Contender>>,
    /// The task.
    pub(super) waker: Option<Waker>,
}

/// The holder that comes next, and its task.
pub(super) struct Successor {
    pub(super) label: Option<&'static str>,
    waker: Option<Waker>,
}

/// Begins a request: asks the nodes, if no other request of this process has one of the keys. Otherwise waits in their queues,
/// and wakes the task when the wait is over.
///
/// # Errors
///
/// Fails if the request may not wait.
pub(crate) fn begin(
    client: Arc<Client>,
    now: Timestamp,
    request: LeaseRequest,
    waker: Option<&Waker>,
) -> Result<Begun, Failed> {
    if request.keys.share() == Share::Reader
        && let Some(held) = read_write::join(&client, now, &request)
    {
        return Ok(Begun::Turn(held));
    }
    // Made before it is known whether it waits, so that the lock of the queue is short.
    let waiter = Arc::new(Waiter {
        ticket: client.next_ticket(),
        client,
        deadline: now.saturating_add(request.terms.policy.wait),
        request,
        state: Mutex::new(State::Waiting(waker.cloned())),
    });
    let (deadline, policy) = (waiter.deadline, &waiter.request.terms.policy);
    let mut lease = None;
    let joined = waiter.place().join(now, policy, |entry| match entry {
        Entry::Turn => Contender::Lease(Arc::clone(lease.insert(waiter.new_lease()))),
        Entry::Line => Contender::Waiter(Arc::clone(&waiter)),
    });
    match (joined, lease) {
        (Ok(JoinOutcome::Turn { backs_off }), Some(lease)) => {
            lease.update(now, |state| lease.begin(state, now, deadline, backs_off));
            Ok(Begun::Turn(HeldLease::first(lease)))
        }
        (Ok(JoinOutcome::Waiting { look_at }), _) => {
            waiter.call_back(deadline);
            if let Some(at) = look_at {
                waiter.call_back(at);
            }
            Ok(Begun::Waiting(WaitingTask {
                waiter,
                is_over: false,
            }))
        }
        (Err(refusal), _) => Err(Failed {
            waiter,
            end: End::Refused(refusal),
        }),
        // The queue has asked for what it says.
        _ => Err(Failed {
            waiter,
            end: End::GivenUp,
        }),
    }
}

impl Waiter {
    fn new_lease(&self) -> Arc<LeaseCell> {
        LeaseCell::new(&self.client, self.ticket, &self.request)
    }

    /// Returns whether the lock of a lease, which is handed over, would do for this request. It has one key, or one slot
    /// of as many permits as this request counts with.
    pub(super) fn could_take_over(&self, lease: &LeaseCell) -> bool {
        self.request.could_take_over(&lease.keys, &lease.terms)
    }

    /// Returns whether it could share a lease that readers have.
    pub(super) fn could_join(&self, lease: &LeaseCell) -> bool {
        self.request.could_join(&lease.terms)
    }

    /// Begins the turn, unless the waiter has given up. The queue has given it the turn already.
    pub(super) fn start_turn(&self) -> Option<StartedTurn> {
        if !self.is_waiting() {
            return None;
        }
        let lease = self.new_lease();
        let contender = Contender::Lease(Arc::clone(&lease));
        self.place().replace_turn(&contender);
        let successor = self.serve(HeldLease::first(Arc::clone(&lease)))?;
        // Since the lease is in the queue, a shutdown may have stopped it, and then there was nobody to wake.
        let waker = lease.wake_on_change(successor.waker);
        #[cfg(all(test, redlock_shuttle))]
        crate::threads::sometimes(
            "a turn was stopped before its task was known",
            waker.is_some(),
        );
        Some(StartedTurn {
            lease,
            deadline: self.deadline,
            waker,
        })
    }

    /// Notes what the waiter waited for: a lease of its own, or the lock of its predecessor. Returns `None` if it does not
    /// wait any more. The queue has removed it already, or given it the turn.
    pub(super) fn serve(&self, held: HeldLease) -> Option<Successor> {
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
    pub(super) fn call_back(self: &Arc<Self>, at: Timestamp) {
        let timers = &self.client.timers;
        if timers.wait(at, self.ticket.number(), self).is_err() {
            self.abandon();
        }
    }

    /// Does what is due: ends the wait, or looks whether its keys are still kept for another waiter.
    pub(super) fn handle_timeout(&self, now: Timestamp) {
        if self.deadline <= now {
            self.end(now, AcquireFailure::Contended);
        } else {
            let follow_ups = self.client.queue.look_again(&self.request.keys, now);
            carry_out(now, follow_ups).wake_all();
        }
    }

    /// Wakes the task if the request fails fast and waits.
    pub(super) fn wake_to_look(&self) {
        let waker = match &*self.state() {
            State::Waiting(waker) if self.request.terms.fails_fast => waker.clone(),
            _ => None,
        };
        if let Some(waker) = waker {
            foreign::call(|| waker.wake());
        }
    }

    /// Ends the wait, because nobody would give it a turn any more.
    pub(crate) fn abandon(&self) {
        self.end(self.now(), AcquireFailure::Abandoned);
    }

    fn end(&self, now: Timestamp, failure: AcquireFailure) {
        if let Some(ended) = self.leave_without(now, failure) {
            carry_out(now, ended.follow_ups).wake_all();
            if let Some(waker) = ended.waker {
                foreign::call(|| waker.wake());
            }
        }
    }

    /// Has the timers call back, to look again. Without them, the wait ends now, and there are things to do.
    pub(super) fn look_again_at(self: &Arc<Self>, now: Timestamp, at: Timestamp) -> Option<Ended> {
        let waits = self.client.timers.wait(at, self.ticket.number(), self);
        waits.err()?;
        self.leave_without(now, AcquireFailure::Abandoned)
    }

    /// Ends the wait without the lock. Returns `None` if it has ended already.
    fn leave_without(&self, now: Timestamp, failure: AcquireFailure) -> Option<Ended> {
        let attempts = 0;
        let waker = {
            let mut state = self.state();
            let State::Waiting(waker) = &mut *state else {
                return None;
            };
            let waker = waker.take();
            *state = State::Ended(End::Exhausted { failure, attempts });
            waker
        };
        let follow_ups = self.place().leave(now, None, &self.request.terms.policy);
        Some(Ended { follow_ups, waker })
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
        let follow_ups = self.place().leave(now, None, &self.request.terms.policy);
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

    fn place(&self) -> Place<'_> {
        let LeaseRequest { keys, terms, .. } = &self.request;
        Place::new(&self.client.queue, keys, self.ticket, terms)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*self.state(), State::Waiting(_))
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn now(&self) -> Timestamp {
        self.client.clock.now()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl WaitingTask {
    /// Waits for the turn, or for a lock that is handed over or shared.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<HeldLease, End>> {
        let polled = self.waiter.poll(cx);
        self.is_over = polled.is_ready();
        polled
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        if !self.is_over {
            self.waiter.give_up();
        }
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
