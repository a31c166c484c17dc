//! A lock that passes from its holder to the next waiter in this process, without a request to the nodes.

use std::sync::Arc;

use redlock_core::Timestamp;

use super::{
    LeaseCell,
    held_lease::{Generation, HeldLease},
    local::{Held, Others},
    state::CellState,
    waiting::Successor,
};
use crate::engine::queue::Succession;

impl HeldLease {
    /// Hands the lock over to the next waiter in this process, or leaves it to other readers, without a request to the
    /// nodes. Returns whether it did. If not, the lock is released.
    pub(crate) fn pass_on(&self, now: Timestamp) -> bool {
        let Self { lease, generation } = self;
        let (passed_on, served) = lease.update(now, |state| {
            let passed_on = if state.lease.is_reader() {
                // In one step with the release, before another one can join.
                state.end_hold(now, *generation).then_some(PassedOn::Kept)
            } else {
                lease.try_hand_over(state, now, *generation)
            };
            let served = match &passed_on {
                Some(_) => None,
                None => state.release(now, *generation),
            };
            (passed_on, served)
        });
        if let Some(served) = served {
            served.release(now);
        }
        let is_passed_on = passed_on.is_some();
        if let Some(PassedOn::To(successor)) = passed_on {
            successor.wake();
        }
        is_passed_on
    }
}

impl LeaseCell {
    /// Passes the lock on. A successor has to be woken.
    fn try_hand_over(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        generation: Generation,
    ) -> Option<PassedOn> {
        if !self.terms.hands_over() || self.keys.has_several() || !state.is_generation(generation) {
            return None;
        }
        let held = state.held()?;
        if !self.has_time(state, now) {
            return None;
        }
        let policy = self.policy_of_streak(Some(held));
        match self.next_holder(state, now, held) {
            Succession::Next { waiter, is_late } => {
                if is_late && self.has_line() && held.others == Others::Unknown {
                    let is_asked = self.ask_for_others(now);
                    state.note_others(if is_asked {
                        Others::Asked
                    } else {
                        Others::Wait
                    });
                }
                Some(PassedOn::To(waiter))
            }
            Succession::StreakIsOver if self.has_line() => match held.others {
                Others::Wait => None,
                Others::None => {
                    if !self
                        .client
                        .queue
                        .renew_streak(self.keys.first(), now, &policy)
                    {
                        state.note_others(Others::Wait);
                        return None;
                    }
                    state.note_others(Others::Unknown);
                    self.try_hand_over(state, now, generation)
                }
                // Nobody can tell.
                Others::Unknown if !self.ask_for_others(now) => {
                    state.note_others(Others::Wait);
                    None
                }
                Others::Unknown | Others::Asked | Others::Decide => {
                    state.await_decision(now, generation);
                    Some(PassedOn::Kept)
                }
            },
            Succession::StreakIsOver | Succession::Nobody => None,
        }
    }

    /// Returns whether a successor would have time to work, and renewal time to fail and be tried again.
    fn has_time(&self, state: &CellState, now: Timestamp) -> bool {
        let left = state.lease.valid_until(now);
        left.is_some_and(|until| {
            until.saturating_duration_since(now) >= self.own_ttl().as_duration() / 2
        })
    }

    /// Gives the lock to the next waiter, if the streak of this process is not over.
    fn next_holder(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        held: Held,
    ) -> Succession<Successor> {
        let policy = self.policy_of_streak(Some(held));
        let fits = |next: &Arc<Self>| next.could_take_over(self);
        loop {
            let queue = &self.client.queue;
            let next = queue.take_successor(self.place(), now, held.since, &policy, fits);
            let (next, is_late) = match next {
                Succession::Next { waiter, is_late } => (waiter, is_late),
                Succession::StreakIsOver => return Succession::StreakIsOver,
                Succession::Nobody => return Succession::Nobody,
            };
            let handed_over = HeldLease {
                lease: Arc::clone(self),
                generation: state.next_generation(),
            };
            // Otherwise it has given up at this very moment.
            if let Some(successor) = next.serve(now, handed_over) {
                state.hand_over(now, successor.label);
                return Succession::Next {
                    waiter: successor,
                    is_late,
                };
            }
        }
    }

    /// Takes the answer to whether other processes wait.
    pub(super) fn handle_others(self: &Arc<Self>, is_alone: bool) {
        let now = self.now();
        let successor = self.update(now, |state| {
            let held = state.held()?;
            if held.others != Others::Decide {
                state.note_others(if is_alone { Others::None } else { Others::Wait });
                return None;
            }
            let policy = self.policy_of_streak(Some(held));
            if is_alone
                && self.has_time(state, now)
                && self
                    .client
                    .queue
                    .renew_streak(self.keys.first(), now, &policy)
            {
                state.note_others(Others::Unknown);
                if let Succession::Next { waiter, .. } = self.next_holder(state, now, held) {
                    return Some(waiter);
                }
            } else {
                state.note_others(Others::Wait);
            }
            state.lease.release(now);
            None
        });
        if let Some(successor) = successor {
            successor.wake();
        }
    }
}

/// What became of a lock that its holder does not need any more, if it is not released.
enum PassedOn {
    To(Successor),
    /// By other readers, or by nobody until it is known whether other processes wait.
    Kept,
}
