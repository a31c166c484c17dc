//! The rules for a lease that asks for a permit, or holds one.

use std::sync::Arc;

use redlock_core::{Access, NodeId, Operation, Share, Slot, Timestamp, Transmit};

use super::{
    LeaseCell,
    driving::carry_out,
    state::{CellState, Changes},
};
use crate::node::Command;

impl LeaseCell {
    /// Returns the slot of the permit, if the lock is one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.state().lease.slot()
    }

    /// Sets which other holders the lock may have. Of a semaphore, the lease prefers the slot that the process had last.
    pub(super) fn share(&self, state: &mut CellState) {
        let share = self.keys.share();
        if share == Share::Exclusive {
            return;
        }
        state.lease.set_share(share);
        self.exclude_slots(state);
        if self.keys.slots().is_some()
            && let Some(last) = self.client.slots.last(self.keys.first())
        {
            state.lease.prefer_slot(last);
        }
    }

    /// Excludes the slots that other leases of the process use.
    pub(super) fn exclude_slots(&self, state: &mut CellState) {
        if self.keys.slots().is_some() && state.stage().is_pending() {
            let others = self.client.slots.others(self.keys.first(), state.slot);
            state.lease.exclude_slots(others);
        }
    }

    /// Notes which slot the lease uses after a change, and whether it has found none free.
    pub(super) fn note_slot(&self, state: &mut CellState, now: Timestamp) {
        if self.keys.slots().is_none() {
            return;
        }
        let key = self.keys.first();
        if !state.found_none && state.lease.finds_all_slots_taken(now) {
            state.found_none = true;
            self.client.queue.note_none_free(key, self.ticket);
        }
        let slot = state.lease.slot().filter(|_| state.stage().is_in_queue());
        if slot != state.slot {
            self.client.slots.change(key, state.slot, slot);
            state.slot = slot;
        }
    }

    /// Lets other leases of the process have their share once this one has the lock, or ask once it has stopped asking.
    pub(super) fn tell_others(self: &Arc<Self>, now: Timestamp, changes: &Changes) {
        if changes.is_acquired {
            self.let_readers_in(now);
            carry_out(now, self.place().note_hold(now)).wake_all();
        }
        // It has kept the others from its slot, which may have been free.
        if changes.departure.is_some_and(|it| it.has_asked) && self.keys.slots().is_some() {
            let turns = self.place().turns_beside();
            for lease in turns {
                lease.update(now, |_| ());
            }
        }
    }

    /// Takes the news that a slot is gone from a node.
    pub(crate) fn handle_slot_freed(self: &Arc<Self>, node: NodeId, slot: Slot) {
        let now = self.now();
        self.update(now, |state| {
            state.lease.handle_slot_freed(now, node, slot);
            if state.lease.slot() == Some(slot) {
                state.lease.handle_key_changed(now, node);
            }
        });
    }

    /// Returns the command that carries out a request. `None` if this driver does not know the access.
    pub(super) fn command(&self, transmit: &Transmit) -> Option<Command> {
        let operation: Operation = transmit.operation;
        let label = &self.client.label;
        if let Operation::Adopt { .. } = operation {
            let giver = self.terms.adopts_from.clone()?;
            let key = self.keys.first().clone();
            return Some(Command::adoption(key, giver, operation, label));
        }
        match (transmit.access, self.keys.slots()) {
            (Access::Slot(slot), Some(slots)) => {
                let key = slots.get(slot)?.clone();
                Some(Command::for_all(
                    key.into(),
                    operation,
                    transmit.access,
                    label,
                ))
            }
            (Access::Slots, Some(slots)) => {
                let keys = slots.keys_of(transmit.slots);
                Some(Command::for_slots(keys, transmit.slots, operation))
            }
            (Access::Exclusive | Access::Writer | Access::Reader { .. }, None) => {
                let keys = self.keys.clone();
                Some(Command::for_all(keys, operation, transmit.access, label))
            }
            _ => None,
        }
    }
}
