//! The rules for a lease that asks for a permit, or holds one.
//!
//! A permit is a lock whose key the lease chooses: each attempt is for one slot, the same on all nodes. The slot table knows
//! which slots the process uses, and which are probably free.
//!
//! Once a lease has found no slot free, no further turn begins. One lease, the scout, then waits on behalf of all requests of the
//! process: it stands in the line and watches all slots. If a look shows it several free slots, it asks for one of them, and other
//! requests of the process try the rest at once. Once the scout has its permit, the next scout goes to the end of the line. So a
//! process takes as many free slots as it needs at once, and a process that comes late gets as much as others.

use std::mem;

use redlock_core::{NodeId, Share, Slot, SlotSet, Status};

use super::{Cx, Engine, RequestId, driving::Effect, request::Request};
use crate::engine::queue::Pace;

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

impl Engine {
    /// Sets which other holders the lock may have. Of a semaphore, the lease prefers slots that are probably free.
    pub(super) fn set_share(&mut self, request: &mut Request) {
        let share = request.keys.share();
        if share == Share::Exclusive {
            return;
        }
        request.lease.set_share(share);
        self.exclude_slots(request);
        if request.keys.slots().is_some() {
            let free = self.slots.free(request.keys.first());
            request.lease.prefer_slots(free);
        }
    }

    /// Excludes the slots that other leases of the process use.
    pub(super) fn exclude_slots(&mut self, request: &mut Request) {
        if request.keys.slots().is_some() && request.is_pending() {
            let others = self.slots.others(request.keys.first(), request.slot);
            request.lease.exclude_slots(others);
        }
    }

    /// Notes which slot the lease uses after a step that began with this status, and whether it has found none free. Returns
    /// what others may use instead.
    pub(super) fn note_slot(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        before: Status,
    ) -> ForOthers {
        if request.keys.slots().is_none() {
            return ForOthers::default();
        }
        let key = request.keys.first();
        if !request.found_none && request.lease.finds_all_slots_taken(cx.now) {
            request.found_none = true;
            self.queue.note_none_found(key, request.arrival, true);
        }
        let uses_slot = request.is_in_queue() && !request.lease.is_in_line();
        let slot = request.lease.slot().filter(|_| uses_slot);
        let earlier = mem::replace(&mut request.slot, slot);
        if slot != earlier {
            let departure = request.departure(before);
            let was_held = departure.is_some_and(|it| it.held.is_some());
            self.slots
                .change(request.keys.first(), earlier, slot, was_held);
        }
        ForOthers {
            slot_given_up: earlier.is_some() && slot != earlier,
            seen: request.lease.take_spare_slots(),
            ..ForOthers::default()
        }
    }

    /// Makes the lease, which waits in the line, the scout of its process unless there is one. Returns whether it is the scout.
    pub(super) fn make_scout(&mut self, request: &mut Request) -> bool {
        let (key, arrival) = (request.keys.first(), request.arrival);
        if !mem::replace(&mut request.found_none, true) {
            self.queue.note_none_found(key, arrival, true);
        }
        self.queue.make_scout(key, arrival)
    }

    /// Returns how many of a line may try if this process is one of them: one that has a permit tries only as the first.
    pub(super) fn may_try(&mut self, request: &Request, active: u32) -> u32 {
        let has_permit =
            request.keys.slots().is_some() && self.queue.has_permit(request.keys.first());
        if has_permit { 1 } else { active }
    }

    /// Lets other leases of the process join once this one has the lock, or ask once it has stopped asking, or has seen
    /// more permits free.
    pub(super) fn tell_others(&mut self, cx: Cx<'_>, id: RequestId, changes: ForOthers) {
        if changes.is_acquired {
            self.let_readers_in(cx, id);
        }
        // It is taken out and put back, since the queue needs its keys.
        let Some(request) = self.take(id) else { return };
        if changes.is_acquired {
            let follow_ups = self.queue.note_hold(request.place(), cx.now);
            self.add(follow_ups);
        }
        if request.keys.slots().is_some() {
            if changes.is_alone {
                self.begin_next(cx, &request, Pace::ALL);
            }
            // Those of them that have their turns by then are told of the rest.
            self.to_do.push_back(Effect::TellOfSlots(id, changes));
        }
        self.put_back(request);
    }

    /// Likewise, of what has changed about slots.
    pub(super) fn tell_of_slots(&mut self, cx: Cx<'_>, id: RequestId, changes: &ForOthers) {
        let Some(request) = self.take(id) else { return };
        if !changes.seen.is_empty() {
            self.let_others_ask(cx, &request, changes.seen);
        }
        let key = request.keys.first();
        if changes.slot_given_up {
            // It has kept the others from the slot, which may have been free.
            for id in self.queue.asking(key) {
                self.update(cx, id, |_, _| ());
            }
        }
        if changes.slot_given_up || changes.is_acquired || changes.is_alone {
            self.tell_scout(cx, &request, changes.slot_given_up);
        }
        self.put_back(request);
    }

    /// Tells the scout of the process if a slot was given up. If there is no scout, the first that waits becomes it.
    fn tell_scout(&mut self, cx: Cx<'_>, request: &Request, is_given_up: bool) {
        let key = request.keys.first();
        if let Some(scout) = self.queue.scout(key) {
            if is_given_up {
                self.update(cx, scout, |_, _| ());
            }
            return;
        }
        for id in self.queue.found_none(key) {
            if self.update(cx, id, |_, it| it.lease.is_in_line()) == Some(true) {
                break;
            }
        }
    }

    /// Lets as many other leases ask for permits as this one has seen free.
    fn let_others_ask(&mut self, cx: Cx<'_>, request: &Request, seen: SlotSet) {
        let key = request.keys.first();
        self.slots.note_free(key, seen);
        let mut left = seen.len();
        for id in self.queue.found_none(key) {
            if left == 0 {
                break;
            }
            let tries = self.update(cx, id, |engine, it| {
                let free = engine.slots.free(key);
                it.placed.is_none() && it.lease.try_slots(cx.now, free)
            });
            left -= usize::from(tries == Some(true));
        }
        if left > 0 {
            self.begin_next(cx, request, Pace::for_seen(left));
        }
    }

    /// Gives turns to others of the process that wait for the same.
    pub(super) fn begin_next(&mut self, cx: Cx<'_>, request: &Request, pace: Pace) {
        let (role, keys) = (request.role(), &request.keys);
        let follow_ups = self.queue.advance(role, keys, cx.now, pace);
        self.add(follow_ups);
    }

    /// Takes the news that a slot is gone from a node.
    pub(super) fn handle_slot_freed(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        node: NodeId,
        slot: Slot,
    ) {
        self.update(cx, id, |_, request| {
            request.lease.handle_freed(cx.now, node, Some(slot));
            if request.lease.slot() == Some(slot) {
                request.lease.handle_key_changed(cx.now, node);
            }
        });
    }
}
