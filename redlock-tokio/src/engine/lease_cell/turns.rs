//! The turns of leases within this process: before a lease asks any node, and when its lock passes from one holder
//! to the next.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use redlock_core::{AcquireFailure, Timestamp};

use super::{
    cell::{LeaseCell, LeaseRequest, Shared},
    held_lease::{Generation, HeldLease},
    stage::{Held, Stage},
    state::{CellState, Departure, Successor},
};
use crate::{
    engine::queue::{FollowUp, JoinOutcome, Refused, Ticket},
    foreign,
    options::QueuePolicy,
};

type State = CellState<Arc<LeaseCell>>;

impl LeaseCell {
    /// Creates a lease. It asks the nodes as soon as no other lease of this process has one of its keys.
    pub(crate) fn start(shared: &Arc<Shared>, request: LeaseRequest) -> Arc<Self> {
        // Redlock step 1: the clock is read before the first byte leaves.
        let now = shared.clock.now();
        let cell = Self::new(shared, now, request);
        cell.join(now);
        cell
    }

    /// Asks the nodes, if no other lease of this process has one of the keys. Otherwise waits in the queue.
    fn join(self: &Arc<Self>, now: Timestamp) {
        let queue = &self.shared.queue;
        let follow_up = match queue.join(&self.keys, self.ticket(), now, self, &self.policy) {
            Ok(JoinOutcome::Turn { backs_off }) => {
                return self.update(now, |state| self.begin(state, now, backs_off));
            }
            Ok(JoinOutcome::Waiting { follow_up }) => {
                // The timers learn of the deadline, as of every change.
                self.update(now, |_| ());
                follow_up
            }
            Err(Refused { refusal, follow_up }) => {
                self.update(now, |state| state.refuse(refusal));
                follow_up
            }
        };
        carry_out(now, follow_up.into_iter().collect()).wake_all();
    }

    /// Changes the lease, and does all that follows from the change: for this lease, and for those whose turns come.
    pub(super) fn update<T>(
        self: &Arc<Self>,
        now: Timestamp,
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let (result, changes) = self.step(now, change);
        let follow_ups = changes.departure.map(|it| self.leave(now, it));
        let wake_ups = carry_out(now, follow_ups.unwrap_or_default());
        // Tasks are woken outside of all locks, because a woken task first takes the lock of its lease.
        if changes.for_holder {
            self.notify_holders();
        }
        if let Some(waker) = changes.waker {
            foreign::call(|| waker.wake());
        }
        wake_ups.wake_all();
        result
    }

    /// Ends the reservation of the keys, so that other waiters may pass.
    pub(super) fn lapse(&self, now: Timestamp) {
        let follow_ups = self.shared.queue.lapse(self.ticket(), now);
        carry_out(now, follow_ups).wake_all();
    }

    /// Hands the lock over to the next waiter in this process, without a request to the nodes. Returns whether it
    /// did. If not, the lock is to be released.
    pub(super) fn hand_over(self: &Arc<Self>, generation: Generation) -> bool {
        let now = self.now();
        let successor = self.update(now, |state| self.try_hand_over(state, now, generation));
        let is_handed_over = successor.is_some();
        if let Some(successor) = successor {
            successor.wake();
        }
        is_handed_over
    }

    fn try_hand_over(
        self: &Arc<Self>,
        state: &mut State,
        now: Timestamp,
        generation: Generation,
    ) -> Option<Successor> {
        if !self.policy.hands_over || self.fenced || self.keys.has_several() {
            return None;
        }
        let Stage::Held(held) = *state.stage() else {
            return None;
        };
        if !state.is_generation(generation) {
            return None;
        }
        // The successor should have time to work, and renewal time to fail and be tried again.
        let left = state.lease.valid_until(now)?.saturating_duration_since(now);
        if left < self.config.validity.ttl().as_duration() / 2 {
            return None;
        }
        let policy = self.policy_of_turn(Some(held));
        let fits = |successor: &Arc<Self>| successor.could_take_over(self);
        loop {
            let (queue, key) = (&self.shared.queue, self.keys.first());
            let successor = queue.successor(key, now, held.since, &policy, fits)?;
            let handed_over = HeldLease {
                lease: Arc::clone(self),
                generation: generation.next(),
            };
            // Otherwise it has given up at this very moment.
            if let Some(successor) = successor.take_over(handed_over) {
                state.hand_over(now, &successor);
                return Some(successor);
            }
        }
    }

    /// Returns whether the lock of another lease would do.
    fn could_take_over(&self, other: &Self) -> bool {
        self.policy.hands_over
            && !self.keys.has_several()
            && self.config.validity == other.config.validity
            && self.config.keep_alive == other.config.keep_alive
            && !self.fenced
    }

    fn take_over(self: &Arc<Self>, handed_over: HeldLease<Arc<Self>>) -> Option<Successor> {
        let mut state = self.state();
        let successor = state.take_over(handed_over)?;
        let due = state.due.take();
        // Clearing a deadline never fails.
        let _ = self.shared.timers.reschedule(self, due, None);
        Some(successor)
    }

    /// Asks the nodes, at once or after other processes could go first.
    fn begin(&self, state: &mut State, now: Timestamp, backs_off: bool) {
        let Stage::Queued(queued) = state.stage() else {
            return;
        };
        let deadline = queued.deadline;
        if self.shared.is_shut_down() {
            return state.exhaust(AcquireFailure::Abandoned, 0);
        }
        let pause = if backs_off {
            let (length, share) = (self.turn_length(), self.policy.poller_share);
            let turns = &self.shared.turns;
            turns.end(self.keys.first(), now, length, share)
        } else {
            None
        };
        state.start_acquiring(pause.is_some());
        if let Some(pause) = pause {
            state.lease.back_off(pause);
        }
        if self.fenced {
            let proposal = self.shared.wall_clock.propose(&self.shared.clock, now);
            state.lease.acquire_fenced(now, deadline, proposal);
        } else {
            state.lease.acquire(now, deadline);
        }
    }

    /// Leaves all queues. Returns what to do then.
    fn leave(&self, now: Timestamp, departure: Departure) -> Vec<FollowUp<Arc<Self>>> {
        let queue = &self.shared.queue;
        let policy = self.policy_of_turn(departure.held);
        let held_since = departure.held.map(|it| it.since);
        queue.leave(&self.keys, self.ticket(), now, held_since, &policy)
    }

    /// Returns the policy of a turn that may be longer than usual.
    fn policy_of_turn(&self, held: Option<Held>) -> QueuePolicy {
        let turn = held.and_then(|it| it.turn);
        QueuePolicy {
            streak: turn.unwrap_or(self.turn_length().usual()),
            ..self.policy
        }
    }

    fn ticket(&self) -> Ticket {
        Ticket::new(self.id())
    }
}

/// Carries out what follows from a change in the queue, until nothing follows any more.
///
/// A lease that ends as soon as it begins (because the runtime has ended) leaves the queue at once, and the next
/// lease begins. There may be thousands of them, so this must not recurse.
fn carry_out(now: Timestamp, follow_ups: Vec<FollowUp<Arc<LeaseCell>>>) -> WakeUps {
    let mut follow_ups = VecDeque::from(follow_ups);
    let mut wake_ups = WakeUps::default();
    while let Some(next) = follow_ups.pop_front() {
        let (cell, changes) = match next {
            FollowUp::StartTurn { waiter, backs_off } => {
                let ((), changes) = waiter.step(now, |state| waiter.begin(state, now, backs_off));
                (waiter, changes)
            }
            FollowUp::ScheduleLapse { waiter, at } => {
                let ((), changes) = waiter.step(now, |state| state.schedule_lapse(at));
                (waiter, changes)
            }
        };
        if let Some(departure) = changes.departure {
            follow_ups.extend(cell.leave(now, departure));
        }
        wake_ups.add(cell, changes.waker, changes.for_holder);
    }
    wake_ups
}

/// The tasks to wake, outside of all locks.
#[derive(Default)]
#[must_use]
struct WakeUps(Vec<WakeUp>);

enum WakeUp {
    Waiter(Waker),
    Holders(Arc<LeaseCell>),
}

impl WakeUps {
    fn add(&mut self, cell: Arc<LeaseCell>, waker: Option<Waker>, for_holder: bool) {
        self.0.extend(waker.map(WakeUp::Waiter));
        if for_holder {
            self.0.push(WakeUp::Holders(cell));
        }
    }

    fn wake_all(self) {
        for next in self.0 {
            match next {
                // If one of the tasks panics when it is woken, the others are woken all the same.
                WakeUp::Waiter(waker) => {
                    foreign::call(|| waker.wake());
                }
                WakeUp::Holders(cell) => cell.notify_holders(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        task::Wake,
    };

    use super::*;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, as it should here");
        }
    }

    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_are_woken_if_one_of_them_panics() {
        let counts = Arc::new(Counts(AtomicU32::new(0)));
        let counting = || WakeUp::Waiter(Arc::clone(&counts).into());
        let panicking = WakeUp::Waiter(Arc::new(Panics).into());
        WakeUps(vec![counting(), panicking, counting(), counting()]).wake_all();
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }
}
