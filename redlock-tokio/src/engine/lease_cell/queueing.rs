//! Before a lease asks any node, and when it passes from one holder to the next.

use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use redlock_core::{AcquireFailure, Lease, LeaseConfig, Nonce, Timestamp, TurnLength};
use tokio::sync::Notify;

use super::{CellState, LeaseCell, Phase};
use crate::{
    Hold,
    engine::{
        lane::SetRequests,
        queue::{Joined, Next, Ticket},
        shared::Shared,
    },
    key::KeySet,
    options::QueuePolicy,
    sync::Mutex,
};

/// What a lock is asked for.
pub(crate) struct Request {
    pub(crate) keys: KeySet,
    pub(crate) config: LeaseConfig,
    pub(crate) policy: QueuePolicy,
    pub(crate) nonce: Nonce,
    pub(crate) fenced: bool,
}

/// Who was handed the lock.
struct Successor {
    /// To be woken outside of all locks.
    waker: Option<Waker>,
}

impl LeaseCell {
    /// Creates a lease. It asks the nodes as soon as nobody else in this process has a key of it.
    pub(crate) fn start(shared: &Arc<Shared>, request: Request) -> Arc<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let Request {
            keys,
            config,
            policy,
            nonce,
            fenced,
        } = request;
        // Redlock step 1: the clock is read before the first byte leaves.
        let now = shared.clock.now();
        let deadline = now.saturating_add(policy.wait);
        let lease = Lease::new(config.clone(), nonce);
        let cell = Arc::new(Self {
            id: CREATED.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(shared),
            keys,
            config,
            policy,
            fenced,
            state: Mutex::new(CellState::new(lease, deadline)),
            changed: Notify::new(),
            set_requests: SetRequests::default(),
        });
        cell.join(now);
        cell
    }

    /// Asks the nodes, if nobody else in this process has one of the keys; otherwise waits in line.
    fn join(self: &Arc<Self>, now: Timestamp) {
        let queue = &self.shared.queue;
        let joined = queue.join(&self.keys, self.ticket(), now, self, &self.policy);
        let mut next = None;
        let has_ended = self.step(now, |state| {
            match joined {
                Ok(Joined::Turn { stands_back }) => self.begin(state, now, stands_back),
                // The keeper is told of the deadline, as of every change.
                Ok(Joined::Waiting { next: it }) => next = it,
                Err(refusal) if state.phase == Phase::Queued => {
                    self.enter(state, Phase::Refused(refusal));
                }
                Err(_) => {}
            }
            !state.phase.is_in_line()
        });
        if has_ended {
            // Perhaps while it joined, and then it has not left these lines yet.
            self.leave(now, None, None);
        }
        apply_all(now, next.into_iter().collect());
    }

    /// Asks the nodes, with the turn for all keys; or waits for the end of the reservation.
    fn apply(next: Next<Arc<Self>>, now: Timestamp) {
        match next {
            Next::Turn {
                waiter,
                stands_back,
            } => waiter.step(now, |state| waiter.begin(state, now, stands_back)),
            Next::Lapse { waiter, at } => waiter.step(now, |state| {
                state.queued.lapses_at = Some(at);
            }),
        }
    }

    /// Asks the nodes, at once or after others.
    fn begin(&self, state: &mut CellState, now: Timestamp, stands_back: bool) {
        if state.phase != Phase::Queued {
            return;
        }
        if self.shared.is_shut_down() {
            return self.enter(state, Phase::exhausted(AcquireFailure::Abandoned));
        }
        if stands_back {
            let turns = &self.shared.turns;
            let (length, share) = (self.turn_length(), self.policy.poller_share);
            if let Some(pause) = turns.end(self.keys.first(), now, length, share) {
                state.yields = true;
                state.lease.let_others_first(pause);
            }
        }
        self.enter(state, Phase::Acquiring);
        let deadline = state.queued.deadline;
        if self.fenced {
            let proposal = self.shared.wall_clock.propose(&self.shared.clock, now);
            state.lease.acquire_fenced(now, deadline, proposal);
        } else {
            state.lease.acquire(now, deadline);
        }
    }

    /// Does what is due while it waits. Returns whether a [lapse](Self::lapse) is due too.
    pub(super) fn queue_timeout(&self, state: &mut CellState, now: Timestamp) -> bool {
        if state.phase != Phase::Queued {
            return false;
        }
        if state.queued.deadline <= now {
            self.enter(state, Phase::exhausted(AcquireFailure::Contended));
        }
        let lapses_at = &mut state.queued.lapses_at;
        lapses_at.take_if(|at| *at <= now).is_some()
    }

    /// Ends the reservation of its keys, so that others pass.
    pub(super) fn lapse(&self, now: Timestamp) {
        apply_all(now, self.shared.queue.lapse(self.ticket(), now));
    }

    /// Hands the lock over to the next that waits for it within this process, without a word to the
    /// nodes. Returns whether it did; if not, it is to be released.
    pub(crate) fn hand_over(self: &Arc<Self>, generation: u64) -> bool {
        let now = self.now();
        let successor = self.step(now, |state| self.try_hand_over(state, now, generation));
        if let Some(Successor { waker: Some(waker) }) = successor {
            waker.wake();
            return true;
        }
        successor.is_some()
    }

    fn try_hand_over(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        generation: u64,
    ) -> Option<Successor> {
        if !self.policy.hands_over || state.generation != generation || state.phase != Phase::Held {
            return None;
        }
        let held_since = state.held_since?;
        // The next should have time to work, and renewal time to fail and be tried again.
        let left = state.lease.valid_until(now)?.saturating_duration_since(now);
        if left < self.ttl().as_duration() / 2 || self.fenced || self.keys.has_several() {
            return None;
        }
        let policy = self.policy_of_turn(state.turn);
        loop {
            let queue = &self.shared.queue;
            let fits = |successor: &Arc<Self>| successor.could_take(self);
            let successor = queue.successor(self.keys.first(), now, held_since, &policy, fits)?;
            let given = Hold::of(Arc::clone(self), state.generation + 1);
            // Otherwise it has given up at this very moment.
            if let Some(successor) = successor.accept(given) {
                state.generation += 1;
                state.held_since = Some(now);
                state.lease.hand_over(now);
                return Some(successor);
            }
        }
    }

    /// Returns whether a lock like the other would do.
    fn could_take(&self, other: &Self) -> bool {
        self.policy.hands_over
            && !self.keys.has_several()
            && self.config.validity == other.config.validity
            && self.config.keep_alive == other.config.keep_alive
            && !self.fenced
    }

    /// Takes over a lock, if this lease still waits for one.
    fn accept(self: &Arc<Self>, handed_over: Hold) -> Option<Successor> {
        let mut state = self.state();
        if state.phase != Phase::Queued {
            return None;
        }
        let due = state.due.take();
        let _ = self.shared.timers.reschedule(self, due, None);
        state.handed_over = Some(handed_over);
        self.enter(&mut state, Phase::HandedOver);
        let waker = state.waiting.take();
        Some(Successor { waker })
    }

    /// Returns the policy of a turn that may be longer than usual.
    fn policy_of_turn(&self, turn: Option<Duration>) -> QueuePolicy {
        QueuePolicy {
            streak: turn.unwrap_or(self.turn_length().usual()),
            ..self.policy
        }
    }

    pub(super) fn turn_length(&self) -> TurnLength {
        TurnLength::new(self.policy.streak, self.ttl())
    }

    /// Leaves all queues, and lets the next begin. `turn` is how long this turn of the process was to be, if
    /// not as usual.
    pub(super) fn leave(&self, now: Timestamp, held: Option<Timestamp>, turn: Option<Duration>) {
        let queue = &self.shared.queue;
        let policy = self.policy_of_turn(turn);
        let next = queue.leave(&self.keys, self.ticket(), now, held, &policy);
        apply_all(now, next);
    }

    fn ticket(&self) -> Ticket {
        Ticket::new(self.id)
    }
}

thread_local! {
    /// What this thread is to do after what it does now.
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
}

type Pending = VecDeque<Next<Arc<LeaseCell>>>;

/// Gives turns one after the other. A lease that ends as soon as it begins (because the runtime has
/// gone) gives the turn away while it is given its own; thousands of them must not be thousands deep on
/// the stack.
fn apply_all(now: Timestamp, next: Vec<Next<Arc<LeaseCell>>>) {
    if next.is_empty() {
        return;
    }
    let is_outermost = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        let is_outermost = pending.is_none();
        pending.get_or_insert_default().extend(next.iter().cloned());
        is_outermost
    });
    match is_outermost {
        Ok(true) => apply_pending(now),
        Ok(false) => {}
        // A guard is dropped by a thread that is at its very end.
        Err(_) => {
            for next in next {
                LeaseCell::apply(next, now);
            }
        }
    }
}

/// Does all that this thread is to do.
fn apply_pending(now: Timestamp) {
    let take = || PENDING.with_borrow_mut(|pending| pending.as_mut()?.pop_front());
    while let Some(next) = take() {
        let mut rest = Rest {
            now,
            is_done: false,
        };
        LeaseCell::apply(next, now);
        rest.is_done = true;
    }
    PENDING.set(None);
}

/// Does what is left when somebody's waker panics.
struct Rest {
    now: Timestamp,
    is_done: bool,
}

impl Drop for Rest {
    fn drop(&mut self) {
        if !self.is_done {
            apply_pending(self.now);
        }
    }
}
