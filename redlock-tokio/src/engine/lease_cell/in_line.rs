//! The place of a lease in the line of its key, for all requests of its process.

use std::{sync::Arc, time::Duration};

use redlock_core::{NodeId, Share, Status, Timestamp};
use smallvec::SmallVec;

use super::{
    Client, LeaseCell,
    placed::{Called, Placed},
    state::CellState,
};
use crate::{
    Key,
    engine::{
        lane::{LineNews, LineReply},
        line::{
            self, LineNode, MOST_ACTIVE,
            place::{LONGEST_CHECK, Place, Step},
        },
    },
    key::{KeySet, SlotKeys},
    node::{LineAction, LineAnswer, LineRequest},
};

/// A process that is not called asks for its place this often: as often as one that is not notified asks for the key.
const POLLS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// A line is forgotten after an [hour](LineRequest::LIFETIME) in which nobody asks for a place.
const REFRESH: Duration = Duration::from_secs(1200);

/// A lock of more keys stands in no line: it would take its places one after the other.
const MOST_KEYS: usize = 16;

/// So often a lease that others pass keeps them from its keys: one that waits for several keys, or is not called. Otherwise two
/// busy keys are hardly ever free at the same time, and one that polls hardly ever sees a busy key free.
const KEEPS_EVERY: Duration = Duration::from_secs(2);
const POLL_KEEPS_EVERY: Duration = Duration::from_secs(1);

/// For so long it does at most. In this time the present holder and the process that is active already have had the key, and one
/// that polls has looked once more. With 200 ms, one that polls beside holds of 100 ms waited for 5 to 6 s in the simulator.
const KEEPS_FOR: Duration = Duration::from_millis(130);
const POLL_KEEPS_FOR: Duration = Duration::from_millis(500);

/// A process that is called while another one has the lock is called once more by the release, mostly within this time. So it
/// need not watch the key before, which takes four commands at each node.
const RELEASED_WITHIN: Duration = Duration::from_millis(50);

impl LeaseCell {
    /// Returns whether requests for such locks stand in a line.
    pub(super) fn has_line(&self) -> bool {
        // Readers do not keep each other out.
        let is_alone = self.keys.share() != Share::Reader && self.terms.adopts_from.is_none();
        is_alone && self.keys.count() <= MOST_KEYS
    }

    /// Returns how many of the line may try at a time.
    fn active(&self) -> u32 {
        match self.keys.share() {
            Share::Permit(permits) => permits.count().min(MOST_ACTIVE) as u32,
            _ => 1,
        }
    }

    /// Returns how many of the line may try if this process is one of them: one that has a permit tries only as the first.
    fn may_try(&self, active: u32) -> u32 {
        if self.has_permit() { 1 } else { active }
    }

    /// Does what follows from a change: takes a place or leaves it, or lets the lease try. Returns whether the lease has
    /// changed because of that.
    pub(super) fn stand_in_line(self: &Arc<Self>, state: &mut CellState, now: Timestamp) -> bool {
        match state.lease.status() {
            Status::Held => {
                if let Some(placed) = state.placed.take() {
                    self.client.leave_line(&self.keys, &placed, true);
                }
                return false;
            }
            Status::Asking => {
                if state.placed.as_ref().is_some_and(|it| it.waits()) {
                    state.lease.step_back();
                }
                if !state.lease.is_in_line() {
                    return false;
                }
            }
            _ => return false,
        }
        // Another one of the process stands in the line.
        if self.keys.slots().is_some() && state.placed.is_none() && !self.make_scout(state) {
            return false;
        }
        // Once it is among the first in the lines of all keys, there is no next one.
        let waits = state.placed.as_ref().is_some_and(|it| it.waits());
        if waits || self.join_next_line(state, now) {
            return false;
        }
        let called = state
            .placed
            .as_mut()
            .and_then(|it| it.called.take_if(|it| it.is_due(now)));
        if state.placed.as_ref().is_some_and(|it| it.called.is_some()) {
            return false;
        }
        // Nobody was seen, and no attempt was made.
        let has_waited = state.placed.as_ref().is_none_or(|it| it.has_waited);
        let has_no_reason_to_wait = !has_waited && state.lease.attempts() == 0;
        let tries = has_no_reason_to_wait || matches!(called, Some(Called::Tries));
        let pause = self.client.queue.take_pause(self.keys.first());
        if let Some(placed) = &mut state.placed
            && (self.keys.has_several() || placed.polls())
        {
            let every = if placed.polls() {
                POLL_KEEPS_EVERY
            } else {
                KEEPS_EVERY
            };
            let first = (false, now.saturating_add(every));
            placed.keeps.get_or_insert(first);
        }
        state.lease.proceed(now, tries, pause);
        true
    }

    /// Returns whether another request may take a place over from this lease.
    pub(super) fn may_pass_place_to(&self, other: &Self) -> bool {
        let permits = |it: &Self| it.keys.slots().map(SlotKeys::permits);
        let is_same = self.keys.first() == other.keys.first() && permits(self) == permits(other);
        let of_one_key = !self.keys.has_several() && !other.keys.has_several();
        is_same && of_one_key && other.has_line()
    }

    /// Takes places over from a request of the process that has given up.
    pub(super) fn inherit(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        placed: Box<Placed>,
    ) {
        if !state.is_pending() {
            // It leaves the queue itself.
            return self.client.leave_line(&self.keys, &placed, false);
        }
        if self.keys.slots().is_some() {
            self.make_scout(state);
        }
        let placed = state.placed.insert(placed);
        placed.wait = self.client.lines.next_wait();
        if !placed.waits() {
            state.watched.note_place(0);
        }
        self.change_places(state, now, |_, place| place.inherit());
    }

    /// Passes a place on to another request of the process that waits for a permit. Returns the place if there is none.
    pub(super) fn pass_place_on(&self, now: Timestamp, placed: Box<Placed>) -> Option<Box<Placed>> {
        let mut placed = Some(placed);
        let leases = self.client.queue.found_none(self.keys.first());
        for lease in leases.iter().filter(|it| self.may_pass_place_to(it)) {
            lease.update(now, |state| {
                let waits = state.lease.is_in_line() && state.placed.is_none();
                if let Some(placed) = placed.take_if(|_| waits) {
                    lease.inherit(state, now, placed);
                }
            });
            if placed.is_none() {
                break;
            }
        }
        placed
    }

    /// Takes a place in the line of the next key. Returns false if there is none, or if no node has lines.
    fn join_next_line(self: &Arc<Self>, state: &mut CellState, now: Timestamp) -> bool {
        let client = &self.client;
        let index = state.placed.as_ref().map_or(0, |it| it.places.len());
        let Some(key) = lines_of(&self.keys).nth(index) else {
            return false;
        };
        let Some(LineNode { id, is_usual }) = line::node_of(key, &client.lanes, now) else {
            return false;
        };
        let active = self.active();
        let placed = state.placed.get_or_insert_with(|| {
            Box::new(Placed {
                wait: client.lines.next_wait(),
                active,
                places: SmallVec::new(),
                is_known: false,
                has_waited: false,
                keeps: None,
                called: None,
            })
        });
        let (place, step) = join(client, is_usual);
        placed.places.push((id, place));
        self.take_step(state, now, index, Some(step));
        true
    }

    /// Does what a place asks for.
    fn take_step(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        index: usize,
        step: Option<Step>,
    ) {
        let Some(placed) = &state.placed else {
            return;
        };
        match step {
            None => return,
            Some(Step::Look) if state.lease.is_in_line() => return state.lease.look(now),
            // It cannot look during an attempt, which says as much.
            Some(Step::Look) => {
                return self.change_place(state, now, index, |place| place.handle_look(now, false));
            }
            Some(Step::Join) => {}
        }
        let (lease, wait) = (Arc::clone(self), placed.wait);
        let (node, place) = &placed.places[index];
        let node = *node;
        // The streak of the process is over. It lets others go first if there are any.
        let has_not_tried = state.lease.is_in_line() && state.lease.attempts() == 0;
        let only_behind_others = has_not_tried && !placed.is_known && !self.keys.has_several();
        let action = LineAction::Join {
            member: self.client.lines.member,
            active: placed.active,
            number: place.number(),
            only_behind_others,
        };
        let reply = LineReply::new(move |answer| {
            let now = lease.now();
            lease.update(now, |state| match answer {
                Ok(LineAnswer::Waiting(0)) if only_behind_others => {
                    lease.try_first(state, now, wait);
                }
                answer => lease.handle_line_answer(state, now, wait, index, answer.ok()),
            });
        });
        self.ask_line(node, index, action, reply);
    }

    /// Takes the answer that nobody stands in the line. So the lease tries without a place.
    fn try_first(&self, state: &mut CellState, now: Timestamp, wait: u32) {
        if state.placed.take_if(|it| it.wait == wait).is_some() {
            let (queue, key) = (&self.client.queue, self.keys.first());
            if self.keys.slots().is_some() {
                (state.found_none, state.is_alone) = (false, true);
                queue.note_alone(key, self.arrival);
            }
            let pause = queue.take_pause(key);
            state.lease.try_first(now, pause);
        }
    }

    fn handle_line_answer(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        wait: u32,
        index: usize,
        answer: Option<LineAnswer>,
    ) {
        // An answer to an earlier wait says nothing of this one.
        let Some(placed) = state.placed.as_mut().filter(|it| it.wait == wait) else {
            return;
        };
        let is_last = index + 1 == placed.places.len();
        let (_, place) = &mut placed.places[index];
        let step = match answer {
            Some(LineAnswer::Standing(standing)) => {
                placed.is_known = true;
                placed.has_waited |= standing.ahead > 0;
                // Where it waits now.
                if is_last {
                    state.watched.note_place(standing.ahead);
                }
                let may_try = standing.ahead < self.may_try(placed.active);
                place.handle_standing(now, may_try, standing)
            }
            _ => {
                place.handle_failure(now);
                None
            }
        };
        self.take_step(state, now, index, step);
    }

    /// Asks whether other processes wait for a key that this one holds. Returns false if no node can tell, or only one that
    /// other processes may not use.
    pub(super) fn ask_for_others(self: &Arc<Self>, now: Timestamp) -> bool {
        let key = lines_of(&self.keys).next();
        let node = key.and_then(|key| line::node_of(key, &self.client.lanes, now));
        let Some(LineNode { id, .. }) = node.filter(|it| it.is_usual) else {
            return false;
        };
        let lease = Arc::clone(self);
        let reply = LineReply::new(move |answer| {
            // Without an answer nobody is known to be alone.
            let is_alone = matches!(answer, Ok(LineAnswer::Waiting(0)));
            lease.handle_others(is_alone);
        });
        self.ask_line(id, 0, LineAction::Count, reply);
        true
    }

    /// Calls the next processes in line, since the lock is released. A process that was called before may be dead by now, or no
    /// node tells it that the key is free.
    pub(super) fn call_next(&self, now: Timestamp) {
        let active = self.active();
        for key in lines_of(&self.keys) {
            if let Some(LineNode { id, .. }) = line::node_of(key, &self.client.lanes, now) {
                let (action, reply) = (LineAction::Call { active }, LineReply::to_nobody());
                let of_several = self.keys.has_several();
                self.client
                    .ask_line(id, key.clone(), of_several, action, reply);
            }
        }
    }

    fn ask_line(&self, node: NodeId, index: usize, action: LineAction, reply: LineReply) {
        let Some(key) = lines_of(&self.keys).nth(index).cloned() else {
            return reply.discard();
        };
        let of_several = self.keys.has_several();
        self.client.ask_line(node, key, of_several, action, reply);
    }

    /// Takes a call from the node of a line.
    pub(super) fn handle_call(self: &Arc<Self>, node: NodeId, key: &[u8], is_taken: bool) {
        let now = self.now();
        self.update(now, |state| {
            let Some(placed) = &mut state.placed else {
                return;
            };
            let mut places = lines_of(&self.keys).zip(&mut placed.places);
            let called =
                places.position(|(it, (has_line, _))| it.as_bytes() == key && *has_line == node);
            let Some(index) = called else {
                return;
            };
            let (_, place) = &mut placed.places[index];
            let may_try = self.may_try(placed.active) == placed.active;
            let was_active = place.is_active();
            let step = place.handle_call(now, may_try);
            if place.is_active() && !was_active {
                state.watched.note_place(placed.active - 1);
                let waits = is_taken && placed.active == 1 && placed.places.len() == 1;
                let watches_at = Called::WatchesAt(now.saturating_add(RELEASED_WITHIN));
                placed.called = waits.then_some(watches_at);
            } else if placed.called.is_some() && !is_taken {
                placed.called = Some(Called::Tries);
            }
            self.take_step(state, now, index, step);
        });
    }

    /// Takes news that concern all places at a node.
    pub(super) fn handle_line_news(self: &Arc<Self>, node: NodeId, news: LineNews) {
        let now = self.now();
        self.update(now, |state| {
            self.change_places(state, now, |at, place| match news {
                _ if *at != node => None,
                LineNews::Life(life) => place.handle_life(life),
                LineNews::Disconnected => {
                    place.handle_failure(now);
                    None
                }
            });
        });
    }

    /// Takes the news that there is a new connection to a node.
    pub(super) fn rejoin_at(self: &Arc<Self>, state: &mut CellState, now: Timestamp, node: NodeId) {
        self.change_places(state, now, |has_line, place| {
            (*has_line == node)
                .then(|| place.handle_connection())
                .flatten()
        });
    }

    /// Takes the end of a look of the lease.
    pub(super) fn handle_look(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        is_free: bool,
    ) {
        self.change_or_move(state, now, |place| place.handle_look(now, is_free));
    }

    /// Does what is due for the places.
    pub(super) fn handle_line_timeout(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        self.change_or_move(state, now, |place| place.handle_timeout(now));
        if let Some(placed) = &mut state.placed {
            // A call to try at once waits for the lease to be asked.
            let called = &mut placed.called;
            called.take_if(|it| matches!(it, Called::WatchesAt(at) if *at <= now));
        }
        self.keep_keys(state, now);
    }

    /// Starts or stops keeping other requests away from several keys, if that is due.
    fn keep_keys(&self, state: &mut CellState, now: Timestamp) {
        let Some(placed) = &mut state.placed else {
            return;
        };
        let (waits, polls) = (placed.waits(), placed.polls());
        let Some((keeps, until)) = &mut placed.keeps else {
            return;
        };
        if now < *until {
            return;
        }
        let is_over = *keeps;
        *keeps = !is_over && !waits;
        let next = match (*keeps, polls) {
            (false, false) => KEEPS_EVERY,
            (false, true) => POLL_KEEPS_EVERY,
            (true, false) => KEEPS_FOR,
            (true, true) => POLL_KEEPS_FOR,
        };
        *until = now.saturating_add(next);
        if *keeps || is_over {
            let (member, active) = (self.client.lines.member, placed.active);
            let action = if is_over {
                LineAction::LetGo { member, active }
            } else {
                LineAction::Keep { member, active }
            };
            self.client.ask_all_lines(&self.keys, placed, action);
        }
    }

    /// Changes the places. Before one is asked for, it moves to the node that has the line by now: a process that stayed at
    /// the old node could wait for those that have moved, and one that is the first there is passed by them.
    fn change_or_move(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        change: impl Fn(&mut Place) -> Option<Step>,
    ) {
        let client = &self.client;
        let (mut keys, active) = (lines_of(&self.keys), self.active());
        let of_several = self.keys.has_several();
        let keeps = state.placed.as_ref().and_then(|it| it.keeps);
        let keeps = keeps.is_some_and(|(keeps, _)| keeps);
        self.change_places(state, now, |node, place| {
            let key = keys.next();
            let step = change(place)?;
            if step == Step::Look {
                return Some(step);
            }
            let line_node = key.and_then(|key| line::node_of(key, &client.lanes, now));
            let elsewhere = key.zip(line_node).filter(|(_, it)| it.id != *node);
            let Some((key, LineNode { id, is_usual })) = elsewhere else {
                return Some(step);
            };
            client.leave_one_line(key, *node, of_several, active, false);
            if keeps {
                let let_go = LineAction::LetGo {
                    member: client.lines.member,
                    active,
                };
                let reply = LineReply::to_nobody();
                client.ask_line(*node, key.clone(), of_several, let_go, reply);
            }
            *node = id;
            let (joined, step) = join(client, is_usual);
            *place = joined;
            Some(step)
        });
    }

    fn change_places(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        mut change: impl FnMut(&mut NodeId, &mut Place) -> Option<Step>,
    ) {
        let count = state.placed.as_ref().map_or(0, |it| it.places.len());
        for index in 0..count {
            let place = state
                .placed
                .as_mut()
                .and_then(|it| it.places.get_mut(index));
            let step = place.and_then(|(node, place)| change(node, place));
            self.take_step(state, now, index, step);
        }
    }

    fn change_place(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        index: usize,
        change: impl FnOnce(&mut Place) -> Option<Step>,
    ) {
        let places = state.placed.as_mut().map(|it| &mut it.places);
        let place = places.and_then(|it| it.get_mut(index));
        let step = place.and_then(|(_, place)| change(place));
        self.take_step(state, now, index, step);
    }
}

impl Client {
    /// Gives places up. Processes that are among the first because of that are called.
    pub(super) fn leave_line(&self, keys: &KeySet, placed: &Placed, is_taken: bool) {
        for (key, (node, _)) in lines_of(keys).zip(&placed.places) {
            self.leave_one_line(key, *node, keys.has_several(), placed.active, is_taken);
        }
        if let Some((true, _)) = placed.keeps {
            let (member, active) = (self.lines.member, placed.active);
            self.ask_all_lines(keys, placed, LineAction::LetGo { member, active });
        }
    }

    fn leave_one_line(
        &self,
        key: &Key,
        node: NodeId,
        of_several: bool,
        active: u32,
        is_taken: bool,
    ) {
        let action = LineAction::Leave {
            member: self.lines.member,
            active,
            is_taken,
        };
        let reply = LineReply::to_nobody();
        self.ask_line(node, key.clone(), of_several, action, reply);
    }

    fn ask_all_lines(&self, keys: &KeySet, placed: &Placed, action: LineAction) {
        for (key, (node, _)) in lines_of(keys).zip(&placed.places) {
            let (of_several, reply) = (keys.has_several(), LineReply::to_nobody());
            self.ask_line(*node, key.clone(), of_several, action, reply);
        }
    }

    fn ask_line(
        &self,
        node: NodeId,
        key: Key,
        of_several: bool,
        action: LineAction,
        reply: LineReply,
    ) {
        let client_name = self.lines.client_name.shared();
        let request = LineRequest {
            key,
            of_several,
            action,
            client_name,
        };
        self.lanes[node.index()].send_to_line(request, reply);
    }
}

/// Takes a place at a node. A process that stands elsewhere checks now and then whether it can go back to the usual node.
fn join(client: &Client, is_usual: bool) -> (Place, Step) {
    let polls = line::polls_between(POLLS.0, POLLS.1, &client.random);
    Place::join(polls, if is_usual { REFRESH } else { LONGEST_CHECK })
}

/// Returns the keys that have lines. A semaphore and a lock of the same key have different ones, and so have semaphores of
/// another number of permits: processes that assume fewer permits would keep the others waiting for permits that are free.
fn lines_of(keys: &KeySet) -> impl Iterator<Item = &Key> {
    let last = keys.slots().and_then(SlotKeys::last);
    let keys = last.is_none().then(|| keys.iter());
    last.into_iter().chain(keys.into_iter().flatten())
}
