//! The loop of a lease. A change is made under the lock of the lease, what the lease then wants to send goes to the
//! lanes, what it tells is noted, and its deadline goes to the timers. Outside of the lock, the lease leaves the queue
//! if it has ended, other leases begin, and tasks are woken.

use std::{collections::VecDeque, mem, sync::Arc, task::Waker};

use redlock_core::{
    Access, Eligibility, End, Event, Lease, NodeId, NodeSet, Nonce, Operation, Reply, Share,
    Status, Timestamp, Transmit,
};

use super::{
    LeaseCell,
    local::{Held, Local, Others},
    permits::ForOthers,
    placed::Placed,
    state::{CellState, Changes, Departure, Watchers},
};
use crate::{
    NodeError,
    engine::{
        lane::{MOST_WAIT, Prospect, ReplyTo, runtime_ended},
        queue::{FollowUp, QueuePlace, Role},
        timers::TimersClosed,
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
        // Most changes concern nobody else.
        if !changes.is_empty() {
            let mut effects = Effects::default();
            effects.add(self, now, changes);
            effects.carry_out(now);
        }
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
        let before = state.lease.status();
        self.exclude_slots(&mut state);
        let result = change(&mut state);
        self.follow(&mut state, now);
        while self.stand_in_line(&mut state, now) {
            self.follow(&mut state, now);
        }
        state.note_tries();
        if self.reschedule(&mut state).is_err() {
            state.lease.abandon();
            self.follow(&mut state, now);
        }
        if let Some(Status::Ended(End::Lost(reason))) = state.new_status(before) {
            // The token says which lock it was. Unlike the key it reveals nothing.
            log::warn!(
                label = state.label(),
                keys = self.shown_keys(),
                token = %state.lease.token(),
                %reason,
                "a lock was lost"
            );
            state.observe_loss(now, reason);
        }
        let for_others = self.note_slot(&mut state, now, before);
        (result, state.take_changes(before, for_others))
    }

    // What follows from a change, under the lock.

    /// Sends what is to be sent, and takes the events.
    fn follow(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        self.transmit(state, now);
        self.apply_events(state, now);
    }

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
            let until = self.useful_until(state, now, transmit.operation);
            for node in transmit.nodes.iter() {
                if overloaded.contains(node) {
                    handle_unsent(state, now, &transmit, node, NodeError::Overloaded);
                    continue;
                }
                let reply_to = ReplyTo {
                    requester: Arc::<Self>::clone(self),
                    round: transmit.round,
                    until,
                };
                let lane = &self.client.lanes[node.index()];
                if lane.send(command.clone(), reply_to).is_err() {
                    self.handle_closed_lane(state, now, &transmit, node);
                }
            }
        }
    }

    /// Returns how long a request may wait in a lane. An extension must be answered while the lock is valid. A request
    /// for a new lock waits for no more than [`MOST_WAIT`]: then this process asks for more than the nodes can do.
    fn useful_until(&self, state: &CellState, now: Timestamp, operation: Operation) -> Timestamp {
        let node_timeout = self.client.node_timeout;
        match operation {
            Operation::Extend { .. } => {
                let valid_until = state.lease.valid_until(now).unwrap_or(Timestamp::MAX);
                let left = valid_until.saturating_duration_since(now);
                valid_until.saturating_sub(node_timeout.min(left / 4))
            }
            Operation::Acquire { .. } | Operation::Adopt { .. } | Operation::Probe { .. } => {
                let latest = now.saturating_add(MOST_WAIT.max(node_timeout));
                if self.deadline <= now {
                    // It makes one attempt, without a wait.
                    return latest;
                }
                let soon = now.saturating_add(node_timeout);
                self.deadline.max(soon).min(latest)
            }
            _ => Timestamp::MAX,
        }
    }

    /// Returns the command that carries out a request. `None` if this driver does not know the access.
    pub(super) fn command(&self, transmit: &Transmit) -> Option<Command> {
        let operation: Operation = transmit.operation;
        let client = &self.client.lines.client_name;
        if let Operation::Adopt { .. } = operation {
            let giver = self.terms.adopts_from.clone()?;
            let key = self.keys.first().clone();
            return Some(Command::adoption(key, giver, operation, client));
        }
        match (transmit.access, self.keys.slots()) {
            (Access::Slot(slot), Some(slots)) => {
                let key = slots.get(slot)?.clone();
                Some(Command::for_all(
                    key.into(),
                    operation,
                    transmit.access,
                    client,
                ))
            }
            (Access::Slots, Some(slots)) => {
                let keys = slots.keys_of(transmit.slots);
                Some(Command::for_slots(keys, transmit.slots, operation))
            }
            (Access::Exclusive | Access::Writer | Access::Reader { .. }, None) => {
                let keys = self.keys.clone();
                Some(Command::for_all(keys, operation, transmit.access, client))
            }
            _ => None,
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
                    state.fence = fence;
                    state.granted_by = granted_by;
                    state.local = Local::Held(self.hold_from(state, now, valid_until));
                }
                Event::Extended { .. } => {
                    state.note_extension(true);
                    self.observe_extension(state, now, true);
                }
                Event::Checked => state.note_extension(true),
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
                Event::Looked { is_free } => {
                    self.handle_look(state, now, is_free);
                    self.transmit(state, now);
                }
                // The enum may grow. An event that this driver does not know concerns nobody here.
                _ => {}
            }
        }
    }

    /// Returns how the lock is held that was just acquired.
    fn hold_from(&self, state: &CellState, now: Timestamp, valid_until: Timestamp) -> Held {
        let validity = self.terms.config.validity;
        let lasts = validity.until(Timestamp::ZERO);
        let lasts = lasts.saturating_duration_since(Timestamp::ZERO);
        let began = valid_until.saturating_sub(lasts);
        let has_waited = state.placed.as_ref().is_some_and(|it| it.has_waited());
        Held {
            since: now,
            attempt: now.saturating_duration_since(began).into(),
            // Those that were before it come again behind it, and those behind it are still there.
            others: if has_waited {
                Others::Wait
            } else {
                Others::Unknown
            },
            has_stood: state.placed.is_some(),
        }
    }

    /// Has the timers call back when something is due. Fails if they have ended.
    pub(super) fn reschedule(self: &Arc<Self>, state: &mut CellState) -> Result<(), TimersClosed> {
        // A lease that has ended has its place until the next one takes it over.
        let placed = state.placed.as_ref();
        let placed = placed.filter(|_| state.is_pending());
        let of_place = placed.and_then(|it| it.timeout());
        let due = state.lease.poll_timeout().into_iter();
        let due = due.chain(of_place).chain(state.look_at()).min();
        let is_early_enough = match (state.due, due) {
            // A call that comes too early only sets the next deadline.
            (Some(known), Some(due)) => known <= due,
            (known, due) => known == due,
        };
        if is_early_enough {
            return Ok(());
        }
        let known = mem::take(&mut state.due);
        self.client.timers.reschedule(known, due, self)?;
        state.due = due;
        Ok(())
    }

    // The turn.

    /// Asks the nodes, at once or after other processes could go first.
    pub(super) fn begin(&self, state: &mut CellState, now: Timestamp, backs_off: bool) {
        if !self.enter_acquiring(state, now) {
            return;
        }
        if self.has_line() {
            state
                .lease
                .stand_in_line(!backs_off && state.placed.is_none());
        }
        self.set_share(state);
        let deadline = self.deadline;
        if self.terms.fenced {
            let proposal = self.client.wall_clock.propose(&self.client.clock, now);
            state.lease.acquire_fenced(now, deadline, proposal);
        } else {
            state.lease.acquire(now, deadline);
        }
    }

    /// Begins to ask the nodes. Returns false if the request has ended.
    pub(super) fn enter_acquiring(&self, state: &mut CellState, now: Timestamp) -> bool {
        if state.lease.status() != Status::New {
            return false;
        }
        if self.client.is_shut_down() {
            state.lease.abandon();
            return false;
        }
        let nonce = match self.client.random.u128() {
            Ok(random) => Nonce::new(random),
            Err(error) => {
                state.give_up(now, Local::NoRandomness(error));
                return false;
            }
        };
        state.lease = Lease::new(Arc::clone(&self.terms.config), nonce);
        if self.keys.has_several() {
            state.lease.set_several_keys();
        }
        // A request that only waits in the queue asks for no connection.
        if self.client.majority(now, self.deadline, now) != Prospect::MayVote {
            self.client.want_connections();
        }
        state.local = Local::Nothing;
        true
    }

    /// Ends the turn, and adds what to do then.
    fn leave(&self, now: Timestamp, departure: Departure, effects: &mut Effects) {
        let policy = self.policy_of_streak(departure.held);
        let held_since = departure.held.map(|held| held.since);
        if departure.held.is_some_and(|held| held.has_stood) {
            self.call_next(now);
        }
        let queue = &self.client.queue;
        let follow_ups = queue.leave(self.place(), now, held_since, &policy);
        // The next request of the process takes it over.
        let mut placed = self.state().placed.take();
        for mut effect in follow_ups.into_iter().map(Effect::from) {
            if let Effect::Begin {
                lease,
                placed: inherited,
                ..
            } = &mut effect
            {
                *inherited = placed.take_if(|_| self.may_pass_place_to(lease));
            }
            effects.to_do.push_back(effect);
        }
        let placed = placed.and_then(|placed| self.pass_place_on(now, placed));
        if let Some(placed) = placed {
            self.client.leave_line(&self.keys, &placed, false);
        }
    }

    pub(super) fn place(&self) -> QueuePlace<'_> {
        QueuePlace {
            keys: &self.keys,
            role: self.role(),
            arrival: self.arrival,
        }
    }

    /// Returns the kind of the request. A reader that may not wait asks the nodes itself, even if another one does.
    pub(super) fn role(&self) -> Role {
        let policy = &self.terms.policy;
        let joins = policy.hands_over && !policy.streak.is_zero() && !policy.wait.is_zero();
        match self.keys.share() {
            _ if self.terms.adopts_from.is_some() => Role::Adopter,
            Share::Permit(permits) => Role::Permit(permits),
            Share::Reader if joins => Role::Reader,
            Share::Reader => Role::LoneReader,
            Share::Writer => Role::Writer,
            _ => Role::Lock,
        }
    }

    /// Returns the policy of a streak that began with such a hold.
    pub(super) fn policy_of_streak(&self, held: Option<Held>) -> QueuePolicy {
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

/// Carries out what follows from a change in the queue.
pub(super) fn carry_out(now: Timestamp, follow_ups: Vec<FollowUp<Arc<LeaseCell>>>) {
    let effects = Effects {
        to_do: follow_ups.into_iter().map(Effect::from).collect(),
        wakers: Watchers::new(),
    };
    effects.carry_out(now);
}

/// The consequences of changes of leases, which are carried out outside of their locks.
#[derive(Default)]
struct Effects {
    /// Mostly there are none.
    to_do: VecDeque<Effect>,
    /// The tasks to wake.
    wakers: Watchers,
}

enum Effect {
    /// The lease has its turn, and may take a place in the line over.
    Begin {
        lease: Arc<LeaseCell>,
        backs_off: bool,
        placed: Option<Box<Placed>>,
    },
    /// The keys of the lease are kept for another one until then.
    LookAgain {
        lease: Arc<LeaseCell>,
        at: Timestamp,
    },
    /// The lease has changed in a way that concerns others of its process.
    TellOthers(Arc<LeaseCell>, ForOthers),
}

impl From<FollowUp<Arc<LeaseCell>>> for Effect {
    fn from(follow_up: FollowUp<Arc<LeaseCell>>) -> Self {
        match follow_up {
            FollowUp::StartTurn { waiter, backs_off } => Self::Begin {
                lease: waiter,
                backs_off,
                placed: None,
            },
            FollowUp::LookAgain { waiter, at } => Self::LookAgain { lease: waiter, at },
        }
    }
}

impl Effects {
    /// Adds what follows from a change of a lease.
    fn add(&mut self, lease: &Arc<LeaseCell>, now: Timestamp, changes: Changes) {
        if changes.has_events {
            lease.tell_observers();
        }
        if let Some(departure) = changes.departure {
            lease.leave(now, departure, self);
        }
        let concerns_others = lease.keys.share() != Share::Exclusive;
        if concerns_others && changes.for_others != ForOthers::default() {
            let tell = Effect::TellOthers(Arc::clone(lease), changes.for_others);
            self.to_do.push_back(tell);
        }
        if self.wakers.is_empty() {
            self.wakers = changes.watchers;
        } else {
            self.wakers.extend(changes.watchers);
        }
    }

    /// Carries them out until nothing follows any more.
    ///
    /// A lease that ends as soon as it begins (because the runtime has ended) leaves the queue at once, and the next
    /// lease begins. There may be thousands of them, so this must not recurse.
    fn carry_out(mut self, now: Timestamp) {
        while let Some(effect) = self.to_do.pop_front() {
            match effect {
                Effect::Begin {
                    lease,
                    backs_off,
                    placed,
                } => {
                    let ((), changes) = lease.step(now, |state| {
                        if let Some(placed) = placed {
                            lease.inherit(state, now, placed);
                        }
                        lease.begin(state, now, backs_off);
                    });
                    self.add(&lease, now, changes);
                }
                Effect::LookAgain { lease, at } => {
                    let at = at.min(lease.deadline);
                    let ((), changes) = lease.step(now, |state| state.look_again_at(at));
                    self.add(&lease, now, changes);
                }
                Effect::TellOthers(lease, changes) => lease.tell_others(now, &changes),
            }
        }
        // Tasks are woken outside of all locks, because a woken task first takes the lock of its lease.
        self.wakers.into_iter().for_each(wake);
    }
}

/// Wakes a task. If it panics, others are woken all the same.
fn wake(waker: Waker) {
    foreign::call(|| waker.wake());
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
        let counting = || Arc::clone(&counts).into();
        let panicking = Arc::new(Panics).into();
        let effects = Effects {
            to_do: VecDeque::new(),
            wakers: [counting(), panicking, counting(), counting()]
                .into_iter()
                .collect(),
        };
        effects.carry_out(Timestamp::ZERO);
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }
}
