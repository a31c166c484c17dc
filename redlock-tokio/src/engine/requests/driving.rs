//! The loop of a request: a change is made, what the lease then wants to send goes to the lanes, what it tells is noted, and
//! its deadline goes to the timers. If its turn is over, other requests begin.

use std::sync::Arc;

use redlock_core::{
    Access, Eligibility, End, Event, Lease, NodeId, NodeSet, Nonce, Operation, Reply, Share,
    Status, Timestamp, Transmit,
};

use super::{
    Cx, Engine, RequestId,
    local::{Held, Local, Others},
    permits::ForOthers,
    placed::Placed,
    request::{Departure, Request},
};
use crate::{
    NodeError,
    engine::{
        lane::{LaneEnded, MOST_WAIT, Prospect, ReplyTo, Whom, runtime_ended},
        queue::{FollowUp, QueuePlace, Role},
    },
    log,
    node::Command,
    observer::LockChange,
    options::QueuePolicy,
};

/// What follows from a change of one request for others. There may be thousands, one after the other, so that nothing recurses.
pub(super) enum Effect {
    /// A request has its turn, and may take a place in the line over, or it is to look again.
    FollowUp(FollowUp<RequestId>, Option<Box<Placed>>),
    /// The request has changed in a way that concerns others of its process.
    TellOthers(RequestId, ForOthers),
    TellOfSlots(RequestId, ForOthers),
}

impl Engine {
    /// Changes a request, and does all that follows from the change. Returns `None` if it is gone, or changes already.
    pub(super) fn update<T>(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        change: impl FnOnce(&mut Self, &mut Request) -> T,
    ) -> Option<T> {
        let mut request = self.take(id)?;
        let before = request.lease.status();
        self.exclude_slots(&mut request);
        let result = change(self, &mut request);
        self.finish(cx, &mut request, before);
        self.put_back(request);
        Some(result)
    }

    /// Does what follows from a change of a request that had this status before.
    pub(super) fn finish(&mut self, cx: Cx<'_>, request: &mut Request, before: Status) {
        self.follow(cx, request);
        while self.stand_in_line(cx, request) {
            self.follow(cx, request);
        }
        request.note_tries();
        self.reschedule(request);
        if let Some(Status::Ended(End::Lost(reason))) = request.new_status(before) {
            let line = request.log_line(cx);
            // The token says which lock it was. Unlike the key it reveals nothing.
            self.out.log(move || {
                log::warn!(
                    label = line.label, keys = line.keys(), token = %line.token, %reason,
                    "a lock was lost"
                );
            });
            request.observe_end(cx.now, |token, held| LockChange::Lost {
                token,
                reason,
                held,
            });
        }
        let for_others = self.note_slot(cx, request, before);
        let changes = request.take_changes(before, for_others);
        self.events.append(&mut request.take_events());
        if let Some(departure) = changes.departure {
            self.leave(cx, request, departure);
        }
        let concerns_others = request.keys.share() != Share::Exclusive;
        if concerns_others && changes.for_others != ForOthers::default() {
            let tell = Effect::TellOthers(request.id, changes.for_others);
            self.to_do.push_back(tell);
        }
        self.out.wakers.extend(changes.watchers);
    }

    /// Does what is left to do, until nothing follows any more.
    pub(super) fn carry_out(&mut self, cx: Cx<'_>) {
        while let Some(effect) = self.to_do.pop_front() {
            match effect {
                Effect::FollowUp(FollowUp::StartTurn { waiter, backs_off }, placed) => {
                    self.update(cx, waiter, |engine, request| {
                        if let Some(placed) = placed {
                            engine.inherit(cx, request, placed);
                        }
                        engine.begin(cx, request, backs_off);
                    });
                }
                Effect::FollowUp(FollowUp::LookAgain { waiter, at }, _) => {
                    self.update(cx, waiter, |_, request| {
                        request.look_again_at(at.min(request.deadline));
                    });
                }
                Effect::TellOthers(id, changes) => self.tell_others(cx, id, changes),
                Effect::TellOfSlots(id, changes) => self.tell_of_slots(cx, id, &changes),
            }
        }
    }

    /// Adds what follows from a change in the queue.
    pub(super) fn add(&mut self, follow_ups: Vec<FollowUp<RequestId>>) {
        let effects = follow_ups.into_iter();
        self.to_do
            .extend(effects.map(|it| Effect::FollowUp(it, None)));
    }

    // What follows from a change.

    /// Sends what is to be sent, and takes the events.
    fn follow(&mut self, cx: Cx<'_>, request: &mut Request) {
        self.transmit(cx, request);
        self.apply_events(cx, request);
    }

    fn apply_events(&mut self, cx: Cx<'_>, request: &mut Request) {
        while let Some(event) = request.lease.poll_event() {
            match event {
                Event::Acquired {
                    valid_until,
                    fence,
                    granted_by,
                } => {
                    request.fence = fence;
                    request.granted_by = granted_by;
                    request.local = Local::Held(request.hold_from(cx.now, valid_until));
                }
                Event::Extended { .. } => {
                    request.note_extension(true);
                    request.observe_extension(cx, true);
                }
                Event::Checked => request.note_extension(true),
                Event::ExtendFailed { .. } => {
                    request.note_extension(false);
                    request.observe_extension(cx, false);
                    let line = request.log_line(cx);
                    let nodes = cx.client.reports(request.watched.objections());
                    self.out.log(move || {
                        log::debug!(
                            label = line.label, keys = line.keys(), token = %line.token, %nodes,
                            "an extension failed, and will be tried again"
                        );
                    });
                }
                Event::Looked { is_free } => {
                    self.handle_look(cx, request, is_free);
                    self.transmit(cx, request);
                }
                // The enum may grow. An event that this driver does not know concerns nobody here.
                _ => {}
            }
        }
    }

    /// Has the timers call back when something is due.
    pub(super) fn reschedule(&mut self, request: &mut Request) {
        // A lease that has ended has its place until the next one takes it over.
        let placed = request.placed.as_ref();
        let placed = placed.filter(|_| request.is_pending());
        let of_place = placed.and_then(|it| it.timeout());
        let due = request.lease.poll_timeout().into_iter();
        let due = due.chain(of_place).chain(request.look_at()).min();
        let is_early_enough = match (request.due, due) {
            // A call that comes too early only sets the next deadline.
            (Some(known), Some(due)) => known <= due,
            (known, due) => known == due,
        };
        if !is_early_enough {
            self.set_deadline(request, due);
        }
    }

    /// Sends what is to be sent.
    fn transmit(&mut self, cx: Cx<'_>, request: &mut Request) {
        while let Some(transmit) = request.lease.poll_transmit() {
            request.note_transmit(&transmit);
            if let Some(observed) = &mut request.observed
                && transmit.operation.sets_key()
                && transmit.asks_for_votes
            {
                observed.note_attempt(cx.now, transmit.operation.token());
            }
            let Some(command) = request.command(cx, &transmit) else {
                for node in transmit.nodes.iter() {
                    request.handle_unsent(cx.now, &transmit, node, NodeError::unknown_operation());
                }
                continue;
            };
            let overloaded = self.overloaded(cx, request, &command, &transmit);
            let until = request.useful_until(cx, transmit.operation);
            for node in transmit.nodes.iter() {
                if overloaded.contains(node) {
                    request.handle_unsent(cx.now, &transmit, node, NodeError::Overloaded);
                    continue;
                }
                let reply_to = ReplyTo {
                    whom: Whom::Request(request.id, request.role()),
                    set_requests: Arc::clone(request.set_requests.get_or_insert_default()),
                    ttl: request.lease.longest_ttl(),
                    round: transmit.round,
                    until,
                };
                if let Err(LaneEnded) = self.send(node, command.clone(), reply_to) {
                    request.handle_unsent(cx.now, &transmit, node, runtime_ended());
                }
            }
        }
    }

    /// Returns the nodes that should not be asked, because they have too much to do already. If too few are left for a
    /// majority, none should be asked: what they did would be undone at once. A node that was not asked to set a key has
    /// nothing to release either.
    fn overloaded(
        &self,
        cx: Cx<'_>,
        request: &mut Request,
        command: &Command,
        transmit: &Transmit,
    ) -> NodeSet {
        let (attempt, nodes) = (transmit.operation.token().attempt(), transmit.nodes);
        let unasked = (request.unasked_attempt == attempt).then_some(request.unasked);
        if matches!(transmit.operation, Operation::Release { .. }) {
            let is_unasked = |node: &NodeId| unasked.is_some_and(|nodes| nodes.contains(*node));
            return nodes.iter().filter(is_unasked).collect();
        }
        let (outboxes, votes) = (&self.outboxes, cx.client.quorum.votes());
        let is_behind = |node: &NodeId| outboxes[node.index()].is_behind(command);
        let is_overloaded = |node: &NodeId| outboxes[node.index()].is_too_much(command);
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
            let unasked = unasked.unwrap_or(cx.client.quorum.all());
            request.unasked_attempt = attempt;
            request.unasked = unasked.difference(asked);
        }
        skipped
    }

    // The turn.

    /// Asks the nodes, at once or after other processes could go first.
    pub(super) fn begin(&mut self, cx: Cx<'_>, request: &mut Request, backs_off: bool) {
        if !request.enter_acquiring(cx) {
            return;
        }
        if request.has_line() {
            let is_first = !backs_off && request.placed.is_none();
            request.lease.stand_in_line(is_first);
        }
        self.set_share(request);
        let deadline = request.deadline;
        if request.terms.fenced {
            let proposal = cx.client.wall_clock.propose(cx.now);
            request.lease.acquire_fenced(cx.now, deadline, proposal);
        } else {
            request.lease.acquire(cx.now, deadline);
        }
    }

    /// Ends the turn, and adds what to do then.
    fn leave(&mut self, cx: Cx<'_>, request: &mut Request, departure: Departure) {
        let policy = request.policy_of_streak(departure.held);
        let held_since = departure.held.map(|held| held.since);
        if departure.held.is_some_and(|held| held.has_stood) {
            self.call_next(cx, request);
        }
        let follow_ups = self
            .queue
            .leave(request.place(), cx.now, held_since, &policy);
        // The next request of the process takes it over.
        let mut placed = request.placed.take();
        for follow_up in follow_ups {
            let next = match &follow_up {
                FollowUp::StartTurn { waiter, .. } => self.get(*waiter),
                FollowUp::LookAgain { .. } => None,
            };
            let inherits = next.is_some_and(|next| request.may_pass_place_to(next));
            let inherited = placed.take_if(|_| inherits);
            self.to_do.push_back(Effect::FollowUp(follow_up, inherited));
        }
        let placed = placed.and_then(|placed| self.pass_place_on(cx, request, placed));
        if let Some(placed) = placed {
            self.leave_line(cx, &request.keys, &placed, false);
        }
    }
}

impl Request {
    /// Begins to ask the nodes. Returns false if the request has ended.
    pub(super) fn enter_acquiring(&mut self, cx: Cx<'_>) -> bool {
        if self.lease.status() != Status::New {
            return false;
        }
        if cx.client.is_shut_down() {
            self.lease.abandon();
            return false;
        }
        let nonce = match cx.client.random.u128() {
            Ok(random) => Nonce::new(random),
            Err(error) => {
                self.give_up(cx.now, Local::NoRandomness(error));
                return false;
            }
        };
        self.lease = Lease::new(Arc::clone(&self.terms.config), nonce);
        if self.keys.has_several() {
            self.lease.set_several_keys();
        }
        // A request that only waits in the queue asks for no connection.
        if cx.client.majority(cx.now, self.deadline, cx.now) != Prospect::MayVote {
            cx.client.want_connections();
        }
        self.local = Local::Nothing;
        true
    }

    /// Returns how long a request may wait in a lane. An extension must be answered while the lock is valid. A request
    /// for a new lock waits for no more than [`MOST_WAIT`]: then this process asks for more than the nodes can do.
    fn useful_until(&self, cx: Cx<'_>, operation: Operation) -> Timestamp {
        let (now, node_timeout) = (cx.now, cx.client.node_timeout);
        match operation {
            Operation::Extend { .. } => {
                let valid_until = self.lease.valid_until(now).unwrap_or(Timestamp::MAX);
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
    fn command(&self, cx: Cx<'_>, transmit: &Transmit) -> Option<Command> {
        let operation: Operation = transmit.operation;
        let client = &cx.client.client_name;
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

    /// Takes the news that nothing is sent to this node.
    fn handle_unsent(
        &mut self,
        now: Timestamp,
        transmit: &Transmit,
        node: NodeId,
        cause: NodeError,
    ) {
        let (round, worth) = (transmit.round, Eligibility::ALWAYS);
        self.watched
            .note_answer(now, round, node, Err(cause), worth);
        let refused = Reply::Refused;
        self.lease.handle_reply(now, round, node, refused, worth);
    }

    /// Returns how the lock is held that was just acquired.
    fn hold_from(&self, now: Timestamp, valid_until: Timestamp) -> Held {
        let validity = self.terms.config.validity;
        let lasts = validity.until(Timestamp::ZERO);
        let lasts = lasts.saturating_duration_since(Timestamp::ZERO);
        let began = valid_until.saturating_sub(lasts);
        let has_waited = self.placed.as_ref().is_some_and(|it| it.has_waited());
        Held {
            since: now,
            attempt: now.saturating_duration_since(began).into(),
            // Those that were before it come again behind it, and those behind it are still there.
            others: if has_waited {
                Others::Wait
            } else {
                Others::Unknown
            },
            has_stood: self.placed.is_some(),
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
