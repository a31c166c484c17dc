//! The rules for a lease that asks for a permit, or holds one.
//!
//! A permit is a lock whose key the lease chooses: each attempt is for one slot, the same on all nodes. The slot table knows
//! which slots the process uses, and which are probably free.
//!
//! Once a lease has found no slot free, no further turn begins. One lease, the scout, then waits on behalf of all requests of the
//! process: it stands in the line and watches all slots. If a look shows it several free slots, it asks for one of them, and other
//! requests of the process try the rest at once. Once the scout has its permit, the next scout goes to the end of the line. So a
//! process takes as many free slots as it needs at once, and a process that comes late gets as much as others.

use std::{mem, sync::Arc};

use redlock_core::{NodeId, Share, Slot, SlotSet, Status, Timestamp};

use super::{LeaseCell, driving::carry_out, state::CellState};

/// The change of a lease that concerns others of its process, which wait for what it has, or share it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForOthers {
    /// It has got its lock or permit.
    pub(super) is_acquired: bool,
    /// It has seen that no other process waits for a permit.
    pub(super) is_alone: bool,
    /// It does not use a slot any more.
    slot_given_up: bool,
    /// The slots that it has seen free besides its own.
    seen: SlotSet,
}

impl LeaseCell {
    /// Returns the slot of the permit, if the lock is one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.state().lease.slot()
    }

    /// Sets which other holders the lock may have. Of a semaphore, the lease prefers slots that are probably free.
    pub(super) fn set_share(&self, state: &mut CellState) {
        let share = self.keys.share();
        if share == Share::Exclusive {
            return;
        }
        state.lease.set_share(share);
        self.exclude_slots(state);
        if self.keys.slots().is_some() {
            let free = self.client.slots.free(self.keys.first());
            state.lease.prefer_slots(free);
        }
    }

    /// Excludes the slots that other leases of the process use.
    pub(super) fn exclude_slots(&self, state: &mut CellState) {
        if self.keys.slots().is_some() && state.is_pending() {
            let others = self.client.slots.others(self.keys.first(), state.slot);
            state.lease.exclude_slots(others);
        }
    }

    /// Notes which slot the lease uses after a step that began with this status, and whether it has found none free. Returns
    /// what others may use instead.
    pub(super) fn note_slot(
        &self,
        state: &mut CellState,
        now: Timestamp,
        before: Status,
    ) -> ForOthers {
        if self.keys.slots().is_none() {
            return ForOthers::default();
        }
        let key = self.keys.first();
        if !state.found_none && state.lease.finds_all_slots_taken(now) {
            state.found_none = true;
            self.client.queue.note_none_free(key, self.arrival);
        }
        let uses_slot = state.is_in_queue() && !state.lease.is_in_line();
        let slot = state.lease.slot().filter(|_| uses_slot);
        let earlier = mem::replace(&mut state.slot, slot);
        if slot != earlier {
            let departure = state.departure(before);
            let was_held = departure.is_some_and(|it| it.held.is_some());
            self.client.slots.change(key, earlier, slot, was_held);
        }
        ForOthers {
            slot_given_up: earlier.is_some() && slot != earlier,
            seen: state.lease.take_spare_slots(),
            ..ForOthers::default()
        }
    }

    /// Makes the lease, which waits in the line, the scout of its process unless there is one. Returns whether it is the scout.
    pub(super) fn make_scout(&self, state: &mut CellState) -> bool {
        let (queue, key) = (&self.client.queue, self.keys.first());
        if !mem::replace(&mut state.found_none, true) {
            queue.note_none_free(key, self.arrival);
        }
        queue.make_scout(key, self.arrival)
    }

    /// Returns whether the process has a permit of the semaphore.
    pub(super) fn has_permit(&self) -> bool {
        self.keys.slots().is_some() && self.client.queue.has_permit(self.keys.first())
    }

    /// Lets other leases of the process join once this one has the lock, or ask once it has stopped asking, or has seen
    /// more permits free.
    pub(super) fn tell_others(self: &Arc<Self>, now: Timestamp, changes: &ForOthers) {
        if changes.is_acquired {
            self.let_readers_in(now);
            carry_out(now, self.client.queue.note_hold(self.place(), now));
        }
        if self.keys.slots().is_none() {
            return;
        }
        let (queue, key) = (&self.client.queue, self.keys.first());
        if changes.is_alone {
            carry_out(now, queue.begin_all(self.place(), now));
        }
        if !changes.seen.is_empty() {
            self.let_others_ask(now, changes.seen);
        }
        if changes.slot_given_up {
            // It has kept the others from the slot, which may have been free.
            for lease in queue.asking(key) {
                lease.update(now, |_| ());
            }
        }
        if changes.slot_given_up || changes.is_acquired || changes.is_alone {
            self.tell_scout(now, changes.slot_given_up);
        }
    }

    /// Tells the scout of the process if a slot was given up. If there is no scout, the first that waits becomes it.
    fn tell_scout(&self, now: Timestamp, is_given_up: bool) {
        let (queue, key) = (&self.client.queue, self.keys.first());
        if let Some(scout) = queue.scout(key) {
            if is_given_up {
                scout.update(now, |_| ());
            }
            return;
        }
        for lease in queue.found_none(key) {
            if lease.update(now, |state| state.lease.is_in_line()) {
                break;
            }
        }
    }

    /// Lets as many other leases ask for permits as this one has seen free.
    fn let_others_ask(&self, now: Timestamp, seen: SlotSet) {
        let (queue, key) = (&self.client.queue, self.keys.first());
        let slots = &self.client.slots;
        slots.note_free(key, seen);
        let mut left = seen.len();
        for lease in queue.found_none(key) {
            if left == 0 {
                break;
            }
            let tries = lease.update(now, |state| {
                state.placed.is_none() && state.lease.try_slots(now, slots.free(key))
            });
            left -= usize::from(tries);
        }
        if left > 0 {
            carry_out(now, queue.begin_permits(self.place(), now, left));
        }
    }

    /// Takes the news that a slot is gone from a node.
    pub(crate) fn handle_slot_freed(self: &Arc<Self>, node: NodeId, slot: Slot) {
        let now = self.now();
        self.update(now, |state| {
            state.lease.handle_freed(now, node, Some(slot));
            if state.lease.slot() == Some(slot) {
                state.lease.handle_key_changed(now, node);
            }
        });
    }
}
