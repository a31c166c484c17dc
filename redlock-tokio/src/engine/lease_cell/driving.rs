//! The loop of a lease. A change is made under the lock of the lease, what the lease then wants to send goes to the
//! lanes, its events change its stage, and its deadline goes to the timers. Outside of the lock, the lease leaves the queue
//! if it has ended, other leases begin, and tasks are woken.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use redlock_core::{
    AcquireFailure, Eligibility, Event, NodeId, NodeSet, Operation, Reply, Share, Timestamp,
    Transmit,
};

use super::{
    Contender, LeaseCell,
    in_line::Placed,
    place::Place,
    stage::{End, Held, Others, Stage},
    state::{CellState, Changes, Departure},
};
use crate::{
    NodeError,
    engine::{
        lane::{Prospect, ReplyTo, runtime_ended},
        queue::FollowUp,
    },
    foreign, log,
    node::Command,
    options::QueuePolicy,
    sync::atomic::Ordering,
};

impl LeaseCell {
    /// Changes the lease, and does all that follows from the change: for this lease, and for those whose turns come.
    pub(super) fn update<T>(
        self: &Arc<Self>,
        now: Timestamp,
        change: impl FnOnce(&mut CellState) -> T,
    ) -> T {
        let (result, changes) = self.step(now, change);
        if changes.has_events {
            self.tell_observers();
        }
        let wake_ups = changes
            .departure
            .map_or_else(WakeUps::default, |departure| {
                carry_out_all(now, self.leave(now, departure))
            });
        if self.keys.share() != Share::Exclusive {
            self.tell_others(now, &changes);
        }
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

    /// Changes the lease, and sends what is to be sent. The caller must see to the changes that are returned.
    ///
    /// Sending happens under the lock, so that each lane gets the requests of one lease in the order in which the
    /// lease makes them. (Sending to a lane never blocks.)
    fn step<T>(
        self: &Arc<Self>,
        now: Timestamp,
        change: impl FnOnce(&mut CellState) -> T,
    ) -> (T, Changes) {
        let mut state = self.state();
        self.exclude_slots(&mut state);
        let result = change(&mut state);
        self.transmit(&mut state, now);
        self.apply_events(&mut state, now);
        while self.stand_in_line(&mut state, now) {
            self.transmit(&mut state, now);
            self.apply_events(&mut state, now);
        }
        state.note_tries();
        self.note_slot(&mut state, now);
        self.reschedule(&mut state, now);
        (result, state.take_changes())
    }

    // What follows from a change, under the lock.

    fn transmit(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        while let Some(transmit) = state.lease.poll_transmit() {
            state.note_transmit(&transmit);
            if let Some(observed) = &mut state.observed
                && transmit.operation.sets_key()
                && transmit.asks_for_votes
            {
                observed.note_attempt(now, transmit.operation.token());
            }
            let Some(command) = self.command(&transmit) else {
                for node in transmit.nodes.iter() {
                    handle_unsent(state, now, &transmit, node, NodeError::unknown_operation());
                }
                continue;
            };
            let overloaded = self.overloaded(state, &command, &transmit);
            for node in transmit.nodes.iter() {
                if overloaded.contains(node) {
                    handle_unsent(state, now, &transmit, node, NodeError::Overloaded);
                    continue;
                }
                let reply_to = ReplyTo {
                    requester: Arc::<Self>::clone(self),
                    round: transmit.round,
                };
                let lane = &self.client.lanes[node.index()];
                if lane.send(command.clone(), reply_to).is_err() {
                    self.handle_closed_lane(state, now, &transmit, node);
                }
            }
        }
    }

    /// Returns the nodes that should not be asked, because they have too much to do already. If too few are left for a
    /// majority, none should be asked: what they did would be undone at once. A node that was not asked to set a key has
    /// nothing to release either.
    fn overloaded(&self, state: &mut CellState, command: &Command, transmit: &Transmit) -> NodeSet {
        let (attempt, nodes) = (transmit.operation.token().attempt(), transmit.nodes);
        let unasked = (state.unasked_attempt == attempt).then_some(state.unasked);
        if matches!(transmit.operation, Operation::Release { .. }) {
            let is_unasked = |node: &NodeId| unasked.is_some_and(|nodes| nodes.contains(*node));
            return nodes.iter().filter(is_unasked).collect();
        }
        let (lanes, votes) = (&self.client.lanes, self.client.quorum.votes());
        let is_behind = |node: &NodeId| lanes[node.index()].counters.is_behind(command);
        let is_overloaded = |node: &NodeId| lanes[node.index()].counters.is_too_much(command);
        let mut skipped: NodeSet = nodes.iter().filter(is_behind).collect();
        // A probe of all nodes needs a majority, too: without answers the lease would make an attempt, which is more work.
        let needs_majority = transmit.asks_for_votes || nodes.len() >= votes;
        let votes = votes.min(nodes.len());
        if needs_majority && nodes.difference(skipped).len() < votes {
            skipped = nodes.iter().filter(is_overloaded).collect();
            if nodes.difference(skipped).len() < votes {
                skipped = nodes;
            }
        }
        if transmit.operation.sets_key() {
            let asked = nodes.difference(skipped);
            let unasked = unasked.unwrap_or(self.client.quorum.all());
            state.unasked_attempt = attempt;
            state.unasked = unasked.difference(asked);
        }
        skipped
    }

    /// Takes the news that a lane's runtime has ended, so that nothing will be sent to this node.
    fn handle_closed_lane(
        &self,
        state: &mut CellState,
        now: Timestamp,
        transmit: &Transmit,
        node: NodeId,
    ) {
        let is_release = matches!(transmit.operation, Operation::Release { .. });
        if is_release && self.set_requests.was_sent(node) {
            self.client.undeliverable.fetch_add(1, Ordering::Relaxed);
        }
        handle_unsent(state, now, transmit, node, runtime_ended());
    }

    fn apply_events(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        while let Some(event) = state.lease.poll_event() {
            match event {
                Event::Acquired {
                    valid_until,
                    fence,
                    granted_by,
                } => {
                    let validity = self.terms.config.validity;
                    let lasts = validity.until(Timestamp::ZERO);
                    let lasts = lasts.saturating_duration_since(Timestamp::ZERO);
                    let began = valid_until.saturating_sub(lasts);
                    let has_waited = state.placed.as_ref().is_some_and(|it| it.has_waited());
                    let held = Held {
                        since: now,
                        attempt: now.saturating_duration_since(began).into(),
                        // Those that were before it come again behind it, and those behind it are still there.
                        others: if has_waited {
                            Others::Wait
                        } else {
                            Others::Unknown
                        },
                    };
                    state.hold(held, fence, granted_by);
                }
                Event::Exhausted { failure, tries } => {
                    state.exhaust(failure, tries);
                }
                Event::Extended { .. } => {
                    state.note_extension(true);
                    self.observe_extension(state, now, true);
                }
                Event::ExtendFailed { .. } => {
                    state.note_extension(false);
                    self.observe_extension(state, now, false);
                    log::debug!(
                        label = state.label(),
                        keys = self.shown_keys(),
                        token = %state.lease.token(),
                        nodes = %self.client.reports(state.watched.objections()),
                        "an extension failed, and will be tried again"
                    );
                }
                Event::Lost(reason) => {
                    // The token says which lock it was. Unlike the key it reveals nothing.
                    log::warn!(
                        label = state.label(),
                        keys = self.shown_keys(),
                        token = %state.lease.token(),
                        %reason,
                        "a lock was lost"
                    );
                    state.observe_loss(now, reason);
                    state.enter(Stage::Ended(End::Lost(reason)));
                }
                Event::Looked { is_free } => {
                    self.handle_look(state, now, is_free);
                    self.transmit(state, now);
                }
                Event::Released(verdict) => state.enter(Stage::Ended(End::Released(verdict))),
                // The enum may grow. An event that this driver does not know concerns nobody here.
                _ => {}
            }
        }
    }

    /// Has the timers call back when something is due. Abandons the lease if they have ended.
    fn reschedule(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        // A lease that has ended has its place until the next one takes it over.
        let placed = state.placed.as_ref();
        let placed = placed.filter(|_| state.stage().is_pending());
        let of_place = placed.and_then(|it| it.timeout());
        let due = state.lease.poll_timeout().into_iter().chain(of_place).min();
        let is_early_enough = match (state.due, due) {
            // A call that comes too early only sets the next deadline.
            (Some(known), Some(due)) => known <= due,
            (known, due) => known == due,
        };
        if is_early_enough {
            return;
        }
        let rescheduled = {
            let lease = || Arc::clone(self);
            self.client
                .timers
                .reschedule(self.id(), state.due, due, lease)
        };
        state.due = due;
        if rescheduled.is_err() {
            state.due = None;
            state.abandon();
            self.transmit(state, now);
            self.apply_events(state, now);
        }
    }

    // The turn.

    /// Asks the nodes, at once or after other processes could go first.
    pub(super) fn begin(
        &self,
        state: &mut CellState,
        now: Timestamp,
        deadline: Timestamp,
        backs_off: bool,
    ) {
        let Stage::New = state.stage() else {
            return;
        };
        if self.client.is_shut_down() {
            return state.exhaust(AcquireFailure::Abandoned, 0);
        }
        // A request that only waits in the queue asks for no connection.
        if self.client.majority(now, deadline, now) != Prospect::MayVote {
            self.client.want_connections();
        }
        if self.has_line() {
            state
                .lease
                .stand_in_line(!backs_off && state.placed.is_none());
        }
        state.enter(Stage::Acquiring);
        self.share(state);
        if self.terms.fenced {
            let proposal = self.client.wall_clock.propose(&self.client.clock, now);
            state.lease.acquire_fenced(now, deadline, proposal);
        } else {
            state.lease.acquire(now, deadline);
        }
    }

    /// Ends the turn. Returns what to do then.
    fn leave(&self, now: Timestamp, departure: Departure) -> VecDeque<ToDo> {
        let policy = self.policy_of_turn(departure.held);
        let held_since = departure.held.map(|held| held.since);
        let follow_ups = self.place().leave(now, held_since, &policy);
        // The next request of the process takes it over.
        let mut placed = self.state().placed.take();
        let mut to_do = VecDeque::new();
        for follow_up in follow_ups {
            let inherits = match &follow_up {
                FollowUp::StartTurn { waiter, .. } => waiter
                    .waiter()
                    .is_some_and(|it| self.may_pass_place_to(&it.request.keys)),
                FollowUp::LookAgain { .. } => false,
            };
            let inherited = placed.take_if(|_| inherits);
            to_do.push_back((follow_up, inherited));
        }
        if let Some(placed) = placed
            && !self.shares_place()
        {
            self.client.leave_line(&self.keys, &placed);
        }
        to_do
    }

    /// Returns whether another request of the process stands in the line, too: the process has one place.
    fn shares_place(&self) -> bool {
        let beside = self.place().turns_beside().into_iter();
        let mut leases = beside.filter_map(Contender::into_lease);
        leases.any(|lease| lease.state().placed.is_some())
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place::new(&self.client.queue, &self.keys, self.ticket, &self.terms)
    }

    /// Returns the policy of a turn that began with such a hold.
    pub(super) fn policy_of_turn(&self, held: Option<Held>) -> QueuePolicy {
        let policy = self.terms.policy;
        QueuePolicy {
            attempt: held.map_or(policy.attempt, |held| held.attempt.into()),
            others_wait: held.is_some_and(|held| held.others == Others::Wait),
            ..policy
        }
    }
}

/// Takes the news that nothing is sent to this node.
fn handle_unsent(
    state: &mut CellState,
    now: Timestamp,
    transmit: &Transmit,
    node: NodeId,
    cause: NodeError,
) {
    let (round, worth) = (transmit.round, Eligibility::ALWAYS);
    let watched = &mut state.watched;
    watched.note_answer(now, round, node, Err(cause), worth);
    let refused = Reply::Refused;
    state.lease.handle_reply(now, round, node, refused, worth);
}

/// Carries out what follows from a change in the queue, until nothing follows any more.
///
/// A lease that ends as soon as it begins (because the runtime has ended) leaves the queue at once, and the next
/// lease begins. There may be thousands of them, so this must not recurse.
pub(super) fn carry_out(now: Timestamp, follow_ups: Vec<FollowUp<Contender>>) -> WakeUps {
    carry_out_all(now, follow_ups.into_iter().map(|it| (it, None)).collect())
}

/// What is to be done, and the place in the line that a turn takes over.
type ToDo = (FollowUp<Contender>, Option<Box<Placed>>);

fn carry_out_all(now: Timestamp, mut follow_ups: VecDeque<ToDo>) -> WakeUps {
    let mut wake_ups = WakeUps::default();
    // Mostly there are none.
    while let Some((next, placed)) = follow_ups.pop_front() {
        let (cell, changes) = match next {
            FollowUp::StartTurn { waiter, backs_off } => {
                let Some(turn) = waiter.waiter().and_then(|it| it.start_turn()) else {
                    // It leaves the queue itself.
                    if let (Some(placed), Some(waiter)) = (placed, waiter.waiter()) {
                        waiter.client.leave_line(&waiter.request.keys, &placed);
                    }
                    continue;
                };
                wake_ups.0.extend(turn.waker.map(WakeUp::Waiter));
                let cell = turn.lease;
                let begin = |state: &mut CellState| {
                    if let Some(placed) = placed {
                        cell.inherit(state, now, placed);
                    }
                    cell.begin(state, now, turn.deadline, backs_off);
                };
                let ((), changes) = cell.step(now, begin);
                (cell, changes)
            }
            FollowUp::LookAgain { waiter, at } => {
                let ended = waiter.waiter().and_then(|it| it.look_again_at(now, at));
                if let Some(ended) = ended {
                    follow_ups.extend(ended.follow_ups.into_iter().map(|it| (it, None)));
                    wake_ups.0.extend(ended.waker.map(WakeUp::Waiter));
                }
                continue;
            }
        };
        if changes.has_events {
            cell.tell_observers();
        }
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
pub(super) struct WakeUps(Vec<WakeUp>);

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

    pub(super) fn wake_all(self) {
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
