//! The place of a lease in the line of its key, for all requests of its process.

use std::time::Duration;

use redlock_core::{NodeId, Share, Status};
use smallvec::SmallVec;

use super::{
    Client, Cx, Engine, RequestId,
    placed::{Called, Placed},
    request::Request,
};
use crate::{
    Key,
    engine::{
        lane::{LineAsker, LineNews, LineQuestion},
        line::{
            self, LineNode, MOST_ACTIVE,
            place::{LONGEST_CHECK, Place, Step},
        },
    },
    key::{KeySet, SlotKeys},
    node::{LineAction, LineAnswer},
};

/// A process that is not called asks for its place this often: as often as one that is not notified asks for the key.
const POLLS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// A line is forgotten after an [hour](LineRequest::LIFETIME) in which nobody asks for a place.
const REFRESH: Duration = Duration::from_secs(1200);

/// A lock of more keys stands in no line: it would take its places one after the other.
const MOST_KEYS: usize = 16;

/// How often a lease that others overtake keeps them from its keys, if it waits for several keys or is not called. Otherwise two
/// busy keys are hardly ever free at the same time, and a lease that polls hardly ever sees a busy key free.
const KEEPS_EVERY: Duration = Duration::from_secs(2);
const POLL_KEEPS_EVERY: Duration = Duration::from_secs(1);

/// How long it keeps them at most. In this time the present holder and the process that is active already have had the key, and one
/// that polls has looked once more. With 200 ms, one that polls beside holds of 100 ms waited for 5 to 6 s in the simulator.
const KEEPS_FOR: Duration = Duration::from_millis(130);
const POLL_KEEPS_FOR: Duration = Duration::from_millis(500);

/// A process that is called while another one has the lock is called once more by the release, mostly within this time. So it
/// need not watch the key before, which takes four commands at each node.
const RELEASED_WITHIN: Duration = Duration::from_millis(50);

impl Request {
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

    /// Returns whether another request may take a place over from this one.
    pub(super) fn may_pass_place_to(&self, other: &Self) -> bool {
        let permits = |it: &Self| it.keys.slots().map(SlotKeys::permits);
        let is_same = self.keys.first() == other.keys.first() && permits(self) == permits(other);
        let of_one_key = !self.keys.has_several() && !other.keys.has_several();
        is_same && of_one_key && other.has_line()
    }
}

impl Engine {
    /// Asks whether other processes wait for a key that a request holds. Returns false if no node can tell, or only one that
    /// other processes may not use.
    pub(super) fn ask_for_others(&mut self, cx: Cx<'_>, request: &Request) -> bool {
        let key = lines_of(&request.keys).next();
        let node = key.and_then(|key| line::node_of(key, &cx.client.lanes, cx.now));
        let Some(LineNode { id: node, .. }) = node.filter(|it| it.is_usual) else {
            return false;
        };
        self.ask_about(
            cx,
            request,
            (node, 0),
            LineAction::Count,
            LineQuestion::Others,
        );
        true
    }

    /// Calls the next processes in line, since the lock is released. A process that was called before may be dead by now, or no
    /// node tells it that the key is free.
    pub(super) fn call_next(&mut self, cx: Cx<'_>, request: &Request) {
        let (active, of_several) = (request.active(), request.keys.has_several());
        for key in lines_of(&request.keys) {
            if let Some(LineNode { id, .. }) = line::node_of(key, &cx.client.lanes, cx.now) {
                let action = LineAction::Call { active };
                self.ask_line(cx, id, (key, of_several), action, LineAsker::Nobody);
            }
        }
    }

    /// Asks a node about the line of one of the keys of a request.
    fn ask_about(
        &mut self,
        cx: Cx<'_>,
        request: &Request,
        (node, index): (NodeId, usize),
        action: LineAction,
        question: LineQuestion,
    ) {
        if let Some(key) = lines_of(&request.keys).nth(index) {
            let of_several = request.keys.has_several();
            let asker = LineAsker::Request(request.id, question);
            self.ask_line(cx, node, (key, of_several), action, asker);
        }
    }

    /// Starts or stops keeping other requests away from several keys, if that is due.
    fn keep_keys(&mut self, cx: Cx<'_>, request: &mut Request) {
        let Some(placed) = &mut request.placed else {
            return;
        };
        let (waits, polls) = (placed.waits(), placed.polls());
        let Some((keeps, until)) = &mut placed.keeps else {
            return;
        };
        if cx.now < *until {
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
        *until = cx.now.saturating_add(next);
        if *keeps || is_over {
            let (member, active) = (cx.client.member, placed.active);
            let action = if is_over {
                LineAction::LetGo { member, active }
            } else {
                LineAction::Keep { member, active }
            };
            self.ask_all_lines(cx, &request.keys, placed, action);
        }
    }

    /// Does what follows from a change: takes a place or leaves it, or lets the lease try. Returns whether the lease has
    /// changed because of that.
    pub(super) fn stand_in_line(&mut self, cx: Cx<'_>, request: &mut Request) -> bool {
        match request.lease.status() {
            Status::Held => {
                if let Some(placed) = request.placed.take() {
                    self.leave_line(cx, &request.keys, &placed, true);
                }
                return false;
            }
            Status::Asking => {
                if request.placed.as_ref().is_some_and(|it| it.waits()) {
                    request.lease.step_back();
                }
                if !request.lease.is_in_line() {
                    return false;
                }
            }
            _ => return false,
        }
        // Another one of the process stands in the line.
        if request.keys.slots().is_some() && request.placed.is_none() && !self.make_scout(request) {
            return false;
        }
        // Once it is among the first in the lines of all keys, there is no next one.
        let waits = request.placed.as_ref().is_some_and(|it| it.waits());
        if waits || self.join_next_line(cx, request) {
            return false;
        }
        let called = request
            .placed
            .as_mut()
            .and_then(|it| it.called.take_if(|it| it.is_due(cx.now)));
        if request
            .placed
            .as_ref()
            .is_some_and(|it| it.called.is_some())
        {
            return false;
        }
        // Nobody was seen, and no attempt was made.
        let has_waited = request.placed.as_ref().is_none_or(|it| it.has_waited);
        let has_no_reason_to_wait = !has_waited && request.lease.attempts() == 0;
        let tries = has_no_reason_to_wait || matches!(called, Some(Called::Tries));
        let pause = self.queue.take_pause(request.keys.first());
        if let Some(placed) = &mut request.placed
            && (request.keys.has_several() || placed.polls())
        {
            let every = if placed.polls() {
                POLL_KEEPS_EVERY
            } else {
                KEEPS_EVERY
            };
            let first = (false, cx.now.saturating_add(every));
            placed.keeps.get_or_insert(first);
        }
        request.lease.proceed(cx.now, tries, pause);
        true
    }

    /// Takes places over from a request of the process that has given up.
    pub(super) fn inherit(&mut self, cx: Cx<'_>, request: &mut Request, placed: Box<Placed>) {
        if !request.is_pending() {
            // It leaves the queue itself.
            return self.leave_line(cx, &request.keys, &placed, false);
        }
        if request.keys.slots().is_some() {
            self.make_scout(request);
        }
        let placed = request.placed.insert(placed);
        placed.wait = next(&mut self.waits);
        if !placed.waits() {
            request.watched.note_place(0);
        }
        self.change_places(cx, request, |_, place| place.inherit());
    }

    /// Passes a place on to another request of the process that waits for a permit. Returns the place if there is none.
    pub(super) fn pass_place_on(
        &mut self,
        cx: Cx<'_>,
        request: &Request,
        placed: Box<Placed>,
    ) -> Option<Box<Placed>> {
        let mut placed = Some(placed);
        for id in self.queue.found_none(request.keys.first()) {
            let may_have = self.get(id).is_some_and(|it| request.may_pass_place_to(it));
            if may_have {
                self.update(cx, id, |engine, next| {
                    let waits = next.lease.is_in_line() && next.placed.is_none();
                    if let Some(placed) = placed.take_if(|_| waits) {
                        engine.inherit(cx, next, placed);
                    }
                });
            }
            if placed.is_none() {
                break;
            }
        }
        placed
    }

    /// Takes a place in the line of the next key. Returns false if there is none, or if no node has lines.
    fn join_next_line(&mut self, cx: Cx<'_>, request: &mut Request) -> bool {
        let client = cx.client;
        let index = request.placed.as_ref().map_or(0, |it| it.places.len());
        let Some(key) = lines_of(&request.keys).nth(index) else {
            return false;
        };
        let Some(LineNode { id, is_usual }) = line::node_of(key, &client.lanes, cx.now) else {
            return false;
        };
        let active = request.active();
        let placed = request.placed.get_or_insert_with(|| {
            Box::new(Placed {
                wait: next(&mut self.waits),
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
        self.take_step(cx, request, index, Some(step));
        true
    }

    /// Does what a place asks for.
    fn take_step(&mut self, cx: Cx<'_>, request: &mut Request, index: usize, step: Option<Step>) {
        let Some(placed) = &request.placed else {
            return;
        };
        match step {
            None => return,
            Some(Step::Look) if request.lease.is_in_line() => return request.lease.look(cx.now),
            // It cannot look during an attempt, which says as much.
            Some(Step::Look) => {
                return self
                    .change_place(cx, request, index, |place| place.handle_look(cx.now, false));
            }
            Some(Step::Join) => {}
        }
        let wait = placed.wait;
        let (node, place) = &placed.places[index];
        let node = *node;
        // The streak of the process is over. It lets others go first if there are any.
        let has_not_tried = request.lease.is_in_line() && request.lease.attempts() == 0;
        let only_behind_others = has_not_tried && !placed.is_known && !request.keys.has_several();
        let action = LineAction::Join {
            member: cx.client.member,
            active: placed.active,
            number: place.number(),
            only_behind_others,
        };
        let question = LineQuestion::Place {
            wait,
            index,
            only_behind_others,
        };
        self.ask_about(cx, request, (node, index), action, question);
    }

    /// Takes the answer of the node of a line to a request.
    pub(super) fn handle_line_answer(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        question: LineQuestion,
        answer: Option<LineAnswer>,
    ) {
        let nobody_waits = answer == Some(LineAnswer::Waiting(0));
        self.update(cx, id, |engine, request| match question {
            // Without an answer nobody is known to be alone.
            LineQuestion::Others => engine.handle_others(cx, request, nobody_waits),
            LineQuestion::Place {
                wait,
                only_behind_others: true,
                ..
            } if nobody_waits => engine.try_first(cx, request, wait),
            LineQuestion::Place { wait, index, .. } => {
                engine.handle_standing(cx, request, (wait, index), answer);
            }
        });
    }

    /// Takes the answer that nobody stands in the line. So the lease tries without a place.
    fn try_first(&mut self, cx: Cx<'_>, request: &mut Request, wait: u32) {
        if request.placed.take_if(|it| it.wait == wait).is_some() {
            let key = request.keys.first();
            if request.keys.slots().is_some() {
                (request.found_none, request.is_alone) = (false, true);
                self.queue.note_none_found(key, request.arrival, false);
            }
            let pause = self.queue.take_pause(key);
            request.lease.try_first(cx.now, pause);
        }
    }

    fn handle_standing(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        (wait, index): (u32, usize),
        answer: Option<LineAnswer>,
    ) {
        // An answer to an earlier wait says nothing of this one.
        let active = request.active();
        let most = self.may_try(request, active);
        let Some(placed) = request.placed.as_mut().filter(|it| it.wait == wait) else {
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
                    request.watched.note_place(standing.ahead);
                }
                place.handle_standing(cx.now, standing.ahead < most, standing)
            }
            _ => {
                place.handle_failure(cx.now);
                None
            }
        };
        self.take_step(cx, request, index, step);
    }

    /// Takes a call from the node of a line.
    pub(super) fn handle_call(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        node: NodeId,
        key: &[u8],
        is_taken: bool,
    ) {
        self.update(cx, id, |engine, request| {
            let active = request.active();
            let may_try = engine.may_try(request, active) == active;
            let Some(placed) = &mut request.placed else {
                return;
            };
            let is_called =
                |(it, (at, _)): (&Key, &(NodeId, Place))| it.as_bytes() == key && *at == node;
            let called = lines_of(&request.keys)
                .zip(&placed.places)
                .position(is_called);
            let Some(index) = called else {
                return;
            };
            let (_, place) = &mut placed.places[index];
            let was_active = place.is_active();
            let step = place.handle_call(cx.now, may_try);
            if place.is_active() && !was_active {
                request.watched.note_place(placed.active - 1);
                let waits = is_taken && placed.active == 1 && placed.places.len() == 1;
                let watches_at = Called::WatchesAt(cx.now.saturating_add(RELEASED_WITHIN));
                placed.called = waits.then_some(watches_at);
            } else if placed.called.is_some() && !is_taken {
                placed.called = Some(Called::Tries);
            }
            engine.take_step(cx, request, index, step);
        });
    }

    /// Takes news that concern all places at a node.
    pub(super) fn handle_line_news(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        node: NodeId,
        news: LineNews,
    ) {
        self.update(cx, id, |engine, request| {
            engine.change_places(cx, request, |at, place| match news {
                _ if *at != node => None,
                LineNews::Life(life) => place.handle_life(life),
                LineNews::Disconnected => {
                    place.handle_failure(cx.now);
                    None
                }
            });
        });
    }

    /// Takes the news that there is a new connection to a node.
    pub(super) fn rejoin_at(&mut self, cx: Cx<'_>, request: &mut Request, node: NodeId) {
        self.change_places(cx, request, |has_line, place| {
            (*has_line == node)
                .then(|| place.handle_connection())
                .flatten()
        });
    }

    /// Takes the end of a look of the lease.
    pub(super) fn handle_look(&mut self, cx: Cx<'_>, request: &mut Request, is_free: bool) {
        self.change_or_move(cx, request, |place| place.handle_look(cx.now, is_free));
    }

    /// Does what is due for the places.
    pub(super) fn handle_line_timeout(&mut self, cx: Cx<'_>, request: &mut Request) {
        self.change_or_move(cx, request, |place| place.handle_timeout(cx.now));
        if let Some(placed) = &mut request.placed {
            // A call to try at once waits for the lease to be asked.
            let called = &mut placed.called;
            called.take_if(|it| matches!(it, Called::WatchesAt(at) if *at <= cx.now));
        }
        self.keep_keys(cx, request);
    }

    /// Changes the places. Before one is asked for, it moves to the node that has the line by now: a process that stayed at
    /// the old node could wait for those that have moved, and one that is the first there is passed by them.
    fn change_or_move(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        change: impl Fn(&mut Place) -> Option<Step>,
    ) {
        let client = cx.client;
        let (own_keys, active) = (request.keys.clone(), request.active());
        let mut keys = lines_of(&own_keys);
        let of_several = own_keys.has_several();
        let keeps = request.placed.as_ref().and_then(|it| it.keeps);
        let keeps = keeps.is_some_and(|(keeps, _)| keeps);
        let mut left = Vec::new();
        self.change_places(cx, request, |node, place| {
            let key = keys.next();
            let step = change(place)?;
            if step == Step::Look {
                return Some(step);
            }
            let line_node = key.and_then(|key| line::node_of(key, &client.lanes, cx.now));
            let elsewhere = key.zip(line_node).filter(|(_, it)| it.id != *node);
            let Some((key, LineNode { id, is_usual })) = elsewhere else {
                return Some(step);
            };
            left.push((*node, key));
            *node = id;
            let (joined, step) = join(client, is_usual);
            *place = joined;
            Some(step)
        });
        for (node, key) in left {
            let member = client.member;
            let leave = LineAction::Leave {
                member,
                active,
                is_taken: false,
            };
            self.ask_line(cx, node, (key, of_several), leave, LineAsker::Nobody);
            if keeps {
                let let_go = LineAction::LetGo { member, active };
                self.ask_line(cx, node, (key, of_several), let_go, LineAsker::Nobody);
            }
        }
    }

    fn change_places(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        mut change: impl FnMut(&mut NodeId, &mut Place) -> Option<Step>,
    ) {
        let count = request.placed.as_ref().map_or(0, |it| it.places.len());
        for index in 0..count {
            let place = request
                .placed
                .as_mut()
                .and_then(|it| it.places.get_mut(index));
            let step = place.and_then(|(node, place)| change(node, place));
            self.take_step(cx, request, index, step);
        }
    }

    fn change_place(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        index: usize,
        change: impl FnOnce(&mut Place) -> Option<Step>,
    ) {
        let places = request.placed.as_mut().map(|it| &mut it.places);
        let place = places.and_then(|it| it.get_mut(index));
        let step = place.and_then(|(_, place)| change(place));
        self.take_step(cx, request, index, step);
    }

    /// Gives places up. Processes that are among the first because of that are called.
    pub(super) fn leave_line(
        &mut self,
        cx: Cx<'_>,
        keys: &KeySet,
        placed: &Placed,
        is_taken: bool,
    ) {
        let (member, active) = (cx.client.member, placed.active);
        self.ask_all_lines(
            cx,
            keys,
            placed,
            LineAction::Leave {
                member,
                active,
                is_taken,
            },
        );
        if let Some((true, _)) = placed.keeps {
            self.ask_all_lines(cx, keys, placed, LineAction::LetGo { member, active });
        }
    }

    fn ask_all_lines(&mut self, cx: Cx<'_>, keys: &KeySet, placed: &Placed, action: LineAction) {
        for (key, (node, _)) in lines_of(keys).zip(&placed.places) {
            let of_several = keys.has_several();
            self.ask_line(cx, *node, (key, of_several), action, LineAsker::Nobody);
        }
    }
}

/// Returns the number of a new wait, by which a request knows the answers to its own questions.
fn next(waits: &mut u32) -> u32 {
    *waits = waits.wrapping_add(1);
    *waits
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
