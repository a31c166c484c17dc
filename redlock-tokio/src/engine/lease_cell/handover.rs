//! A lock that passes from its holder to the next waiter in this process, without a request to the nodes.

use std::sync::Arc;

use redlock_core::Timestamp;

use super::{
    Contender, LeaseCell,
    held_lease::{Generation, HeldLease},
    stage::Stage,
    state::CellState,
    waiter::Successor,
};

impl HeldLease {
    /// Hands the lock over to the next waiter in this process, or leaves it to other readers, without a request to the
    /// nodes. Returns whether it did. If not, the lock is to be released.
    pub(crate) fn hand_over(&self, now: Timestamp) -> bool {
        let Self { lease, generation } = self;
        let mut successor = None;
        let is_passed_on = lease.update(now, |state| {
            if state.lease.is_reader() {
                let has_others = state.leave(now, *generation);
                if !has_others {
                    // Before another one can join.
                    state.release(now, *generation);
                }
                return has_others;
            }
            successor = lease.try_hand_over(state, now, *generation);
            successor.is_some()
        });
        if let Some(successor) = successor {
            successor.wake();
        }
        is_passed_on
    }
}

impl LeaseCell {
    fn try_hand_over(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        generation: Generation,
    ) -> Option<Successor> {
        if !self.terms.hands_over() || self.keys.has_several() {
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
        if left < self.own_ttl().as_duration() / 2 {
            return None;
        }
        let policy = self.policy_of_turn(Some(held));
        let fits = |next: &Contender| next.waiter().is_some_and(|next| next.could_take_over(self));
        loop {
            let next = self.place().successor(now, held.since, &policy, fits)?;
            let handed_over = HeldLease {
                lease: Arc::clone(self),
                generation: generation.next(),
            };
            // Otherwise it has given up at this very moment.
            if let Some(successor) = next.waiter().and_then(|next| next.serve(handed_over)) {
                state.hand_over(now, successor.label);
                return Some(successor);
            }
        }
    }
}
