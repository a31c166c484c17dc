//! The lease behind its lock: what it sends goes to the lanes, and its deadline goes to the timers.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use redlock_core::{
    Eligibility, Event, ExpiryAnomaly, Lease, LeaseConfig, NodeId, NodeSet, Nonce, Operation,
    Reply, RoundId, Timestamp, Transmit, TurnLength,
};

use super::{
    stage::{Held, Stage},
    state::{CellState, Changes},
};
use crate::{
    NodeError,
    engine::{
        lane::{Origin, SetRequests, runtime_ended},
        shared,
    },
    foreign,
    key::KeySet,
    log,
    node::Command,
    options::QueuePolicy,
    sync::{Mutex, MutexGuard, Notify, atomic::Ordering},
};

/// What all handles, guards and leases of one [`Redlock`](crate::Redlock) share.
pub(crate) type Shared = shared::Shared<Arc<LeaseCell>>;

/// A lock that is asked for.
pub(crate) struct LeaseRequest {
    pub(crate) keys: KeySet,
    pub(crate) config: LeaseConfig,
    pub(crate) policy: QueuePolicy,
    pub(crate) nonce: Nonce,
    pub(crate) fenced: bool,
    pub(crate) label: Option<&'static str>,
}

/// A lease behind a short lock that is never held across an await.
///
/// The task that takes a reply from a node gives it to the lease at once. The task that waits for the lock is
/// woken once, when the verdict is in.
pub(crate) struct LeaseCell {
    /// In the order of creation, within one [`Redlock`](crate::Redlock).
    id: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) keys: KeySet,
    pub(super) config: LeaseConfig,
    pub(super) policy: QueuePolicy,
    pub(super) fenced: bool,
    state: Mutex<CellState<Arc<Self>>>,
    /// Notified of the changes that a holder can see.
    changed: Notify,
    /// The requests to set the keys that lanes sent for this lease.
    pub(super) set_requests: SetRequests,
}

impl LeaseCell {
    /// Creates a lease that is not in the queue yet.
    pub(super) fn new(shared: &Arc<Shared>, now: Timestamp, request: LeaseRequest) -> Arc<Self> {
        let LeaseRequest {
            keys,
            config,
            policy,
            nonce,
            fenced,
            label,
        } = request;
        let deadline = now.saturating_add(policy.wait);
        let mut lease = Lease::new(config.clone(), nonce);
        if keys.has_several() {
            lease.set_several_keys();
        }
        Arc::new(Self {
            id: shared.leases.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(shared),
            keys,
            config,
            policy,
            fenced,
            state: Mutex::new(CellState::new(lease, deadline, label)),
            changed: Notify::new(),
            set_requests: SetRequests::default(),
        })
    }

    /// Changes the lease, and sends what is to be sent. The caller must see to the changes that are returned.
    ///
    /// Sending happens under the lock, so that each lane gets the requests of one lease in the order in which the
    /// lease makes them. (Sending to a lane never blocks.)
    pub(super) fn step<T>(
        self: &Arc<Self>,
        now: Timestamp,
        change: impl FnOnce(&mut CellState<Arc<Self>>) -> T,
    ) -> (T, Changes) {
        let mut state = self.state();
        let result = change(&mut state);
        self.transmit(&mut state, now);
        self.apply_events(&mut state, now);
        self.reschedule(&mut state, now);
        (result, state.take_changes())
    }

    /// Wakes the holders that wait for a change.
    pub(super) fn notify_holders(&self) {
        foreign::call(|| self.changed.notify_waiters());
    }

    /// Waits until the state is as wanted.
    pub(super) async fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&CellState<Arc<Self>>) -> Option<T>,
    ) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the state is read, so that no change falls between the two.
            changed.as_mut().enable();
            if let Some(value) = ready(&self.state()) {
                return value;
            }
            changed.await;
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CellState<Arc<Self>>> {
        self.state.lock()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns how long the turns of this process are.
    pub(super) fn turn_length(&self) -> TurnLength {
        TurnLength::new(self.policy.streak, self.config.validity.ttl())
    }

    /// Warns if a node would have dropped the key too early or too late.
    ///
    /// The keys of one node go wrong together, so one warning speaks for all.
    pub(super) fn check_remaining(
        &self,
        state: &CellState<Arc<Self>>,
        now: Timestamp,
        extension: RoundId,
        node: NodeId,
        remaining: Duration,
    ) {
        let lane = &self.shared.lanes[node.index()];
        let node = lane.address();
        match state.lease.judge_remaining(now, extension, remaining) {
            Some(ExpiryAnomaly::TooShort { needed }) => {
                if let Some(withheld) = lane.keys_too_short().due(now) {
                    log::warn!(
                        target: "redlock",
                        label = state.label(), keys = self.shown_keys(), token = %state.lease.token(),
                        %node, ?remaining, ?needed, withheld,
                        "the key had less time left than the lock relies on: the node's clock has stepped, \
                         somebody has shortened the key's life, or the node has missed an extension"
                    );
                }
            }
            Some(ExpiryAnomaly::TooLong { longest }) => {
                if let Some(withheld) = lane.keys_too_long().due(now) {
                    log::warn!(
                        target: "redlock",
                        label = state.label(), keys = self.shown_keys(), token = %state.lease.token(),
                        %node, ?remaining, ttl = ?longest, withheld,
                        "the key had more time left than it was given: the node's clock has stepped back, or \
                         somebody has extended the key's life"
                    );
                }
            }
            _ => {}
        }
    }

    /// Logs that a task has got the lock. The line is in the span of this task.
    pub(crate) fn log_acquisition(&self) {
        log::debug!(
            target: "redlock",
            label = self.label(),
            keys = self.shown_keys(),
            token = %self.token(),
            "a lock was acquired"
        );
    }

    fn label(&self) -> Option<&'static str> {
        self.state().label()
    }

    /// Returns the keys for a line of the log, if they may be logged.
    fn shown_keys(&self) -> Option<impl tracing::Value> {
        let is_allowed = self.shared.logs_keys;
        is_allowed.then(|| tracing::field::debug(self.keys.for_log()))
    }

    fn transmit(self: &Arc<Self>, state: &mut CellState<Arc<Self>>, now: Timestamp) {
        while let Some(transmit) = state.lease.poll_transmit() {
            state.note_transmit(&transmit);
            let command = Command::for_all(self.keys.clone(), transmit.operation);
            let overloaded = self.overloaded(state, &command, &transmit);
            for node in transmit.nodes.iter() {
                if overloaded.contains(node) {
                    handle_unsent(state, now, &transmit, node, NodeError::Overloaded);
                    continue;
                }
                let origin = Origin {
                    requester: Arc::clone(self),
                    round: transmit.round,
                };
                let lane = &self.shared.lanes[node.index()];
                if lane.send(command.clone(), origin).is_err() {
                    self.handle_closed_lane(state, now, &transmit, node);
                }
            }
        }
    }

    /// Returns the nodes that should not be asked, because they have too much to do already. If too few are left for a
    /// majority, none should be asked: what they did would be undone at once. A node that was not asked to set a key has
    /// nothing to release either.
    fn overloaded(
        &self,
        state: &mut CellState<Arc<Self>>,
        command: &Command,
        transmit: &Transmit,
    ) -> NodeSet {
        let (token, nodes) = (transmit.operation.token(), transmit.nodes);
        let unasked = state.unasked.filter(|(it, _)| *it == token);
        let unasked = unasked.map(|(_, unasked)| unasked);
        if matches!(transmit.operation, Operation::Release { .. }) {
            let is_unasked = |node: &NodeId| unasked.is_some_and(|it| it.contains(*node));
            return nodes.iter().filter(is_unasked).collect();
        }
        let (lanes, votes) = (&self.shared.lanes, self.shared.quorum.votes());
        let is_behind = |node: &NodeId| lanes[node.index()].is_behind(command);
        let is_overloaded = |node: &NodeId| lanes[node.index()].is_overloaded(command);
        let mut skipped: NodeSet = nodes.iter().filter(is_behind).collect();
        let votes = votes.min(nodes.len());
        if transmit.asks_for_votes && nodes.difference(skipped).len() < votes {
            skipped = nodes.iter().filter(is_overloaded).collect();
            if nodes.difference(skipped).len() < votes {
                skipped = nodes;
            }
        }
        if matches!(transmit.operation, Operation::Acquire { .. }) {
            let asked = nodes.difference(skipped);
            let unasked = unasked.unwrap_or(self.shared.quorum.all());
            state.unasked = Some((token, unasked.difference(asked)));
        }
        skipped
    }

    /// Takes the news that a lane's runtime has ended, so that nothing will be sent to this node.
    fn handle_closed_lane(
        &self,
        state: &mut CellState<Arc<Self>>,
        now: Timestamp,
        transmit: &Transmit,
        node: NodeId,
    ) {
        let is_release = matches!(transmit.operation, Operation::Release { .. });
        if is_release && self.set_requests.was_sent(node) {
            self.shared.undeliverable.fetch_add(1, Ordering::Relaxed);
        }
        handle_unsent(state, now, transmit, node, runtime_ended());
    }

    fn apply_events(&self, state: &mut CellState<Arc<Self>>, now: Timestamp) {
        while let Some(event) = state.lease.poll_event() {
            match event {
                Event::Acquired {
                    fence, granted_by, ..
                } => {
                    let turn = self.start_turn(state, now);
                    state.hold(Held { since: now, turn }, fence, granted_by);
                }
                Event::Exhausted { failure, attempts } => {
                    self.start_turn(state, now);
                    state.exhaust(failure, attempts);
                }
                Event::Extended { .. } => state.note_extension(),
                Event::ExtendFailed { .. } => {
                    state.note_failed_extension();
                    log::debug!(
                        target: "redlock",
                        label = state.label(),
                        keys = self.shown_keys(),
                        token = %state.lease.token(),
                        nodes = %self.shared.reports(state.watched.objections()),
                        "an extension failed, and will be tried again"
                    );
                }
                Event::Lost(reason) => {
                    // The token says which lock it was. Unlike the key it reveals nothing.
                    log::warn!(
                        target: "redlock",
                        label = state.label(),
                        keys = self.shown_keys(),
                        token = %state.lease.token(),
                        %reason,
                        "a lock was lost"
                    );
                    state.lose(reason);
                }
                Event::Released(verdict) => state.finish_release(verdict),
                // The enum may grow. An event that this driver does not know concerns nobody here.
                _ => {}
            }
        }
    }

    /// Starts a turn of this process, if other processes could go first. Returns how long the turn may last.
    fn start_turn(&self, state: &CellState<Arc<Self>>, now: Timestamp) -> Option<Duration> {
        let Stage::Acquiring { after_pause: true } = state.stage() else {
            return None;
        };
        let was_contended = state.lease.was_contended();
        let (turns, key) = (&self.shared.turns, self.keys.first());
        Some(turns.start(key, now, was_contended, self.turn_length()))
    }

    /// Has the timers call back when something is due. Abandons the lease if they have ended.
    fn reschedule(self: &Arc<Self>, state: &mut CellState<Arc<Self>>, now: Timestamp) {
        let due = state.next_due();
        let is_early_enough = match (state.due, due) {
            // A call that comes too early only sets the next deadline.
            (Some(known), Some(due)) => known <= due,
            (known, due) => known == due,
        };
        if is_early_enough {
            return;
        }
        let rescheduled = self.shared.timers.reschedule(self, state.due, due);
        state.due = due;
        if rescheduled.is_err() {
            state.due = None;
            state.abandon();
            self.transmit(state, now);
            self.apply_events(state, now);
        }
    }
}

/// Takes the news that nothing is sent to this node.
fn handle_unsent(
    state: &mut CellState<Arc<LeaseCell>>,
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

// As for `Shared`.
impl UnwindSafe for LeaseCell {}
impl RefUnwindSafe for LeaseCell {}

impl fmt::Debug for LeaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseCell")
            .field("id", &self.id)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
