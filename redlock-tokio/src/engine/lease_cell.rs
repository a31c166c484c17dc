//! A lease that several parties share: its holder, the lanes that bring replies, the timers.

mod queueing;
mod state;

use std::{
    fmt, mem,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use redlock_core::{
    AcquireFailure, Eligibility, Event, FencingToken, LeaseConfig, NodeId, Operation, Quorum,
    Reply, RoundId, Timestamp, Token, Ttl, Withdrawal,
};
use tokio::sync::Notify;

use self::state::CellState;
pub(crate) use self::{queueing::Request, state::Phase};
use crate::{
    Hold, Key, NodeError, NodeReports, NodeStatus,
    engine::{
        lane::{Origin, Requester, SetRequests},
        shared::Shared,
        warning::Outage,
    },
    key::KeySet,
    node::status,
    node::{Answer, Command, Vote, reply_of},
    options::QueuePolicy,
    sync::{Mutex, MutexGuard},
};

/// More than clocks that only drift can differ by within a lease.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// A lease behind a short lock that is never held across an await.
///
/// Replies go straight into the machine, on whichever task they arrive; the task that waits for
/// the lock is woken once, when the verdict is in.
pub(crate) struct LeaseCell {
    id: u64,
    shared: Arc<Shared>,
    keys: KeySet,
    config: LeaseConfig,
    policy: QueuePolicy,
    fenced: bool,
    state: Mutex<CellState>,
    /// Told of every change of a lock that was acquired.
    changed: Notify,
    /// The requests to set the keys that lanes sent for this lease.
    set_requests: SetRequests,
}

impl Requester for Arc<LeaseCell> {
    fn handle_answer(
        &self,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        answer: Answer,
        eligibility: Eligibility,
    ) {
        self.step(now, |state| {
            let reply = reply_of(&answer, now);
            if let Ok(Vote::Extended { remaining }) = answer {
                self.look_at_remaining(state, now, round, node, remaining);
            }
            if state.watched == Some(round) {
                state.object(node, now, answer, eligibility);
            }
            state
                .lease
                .handle_reply(now, round, node, reply, eligibility);
        });
    }

    fn set_requests(&self) -> &SetRequests {
        &self.set_requests
    }

    fn ttl(&self) -> Ttl {
        LeaseCell::ttl(self)
    }
}

impl LeaseCell {
    // Inputs.

    /// Takes the news that votes of a node count for nothing.
    pub(crate) fn handle_withdrawal(self: &Arc<Self>, node: NodeId, withdrawal: Withdrawal) {
        let now = self.now();
        self.step(now, |state| {
            state.lease.handle_withdrawal(now, node, withdrawal);
        });
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(self: &Arc<Self>, now: Timestamp) {
        let lapses = self.step(now, |state| {
            // The keeper has forgotten this deadline, or is about to be told another. (Taking one
            // away never fails.)
            let due = state.due.take();
            let _ = self.shared.timers.reschedule(self, due, None);
            let lapses = self.queue_timeout(state, now);
            state.lease.handle_timeout(now);
            lapses
        });
        if lapses {
            self.lapse(now);
        }
    }

    /// Takes the news that a key is gone from a node.
    pub(crate) fn handle_freed(self: &Arc<Self>, node: NodeId) {
        let now = self.now();
        self.step(now, |state| {
            if self.keys.has_several() {
                // The others may still be there.
                state.lease.probe_again(node);
            } else {
                state.lease.handle_freed(now, node);
            }
        });
    }

    /// Releases the lock, or gives up acquiring it. What was handed over is not touched.
    pub(crate) fn release(self: &Arc<Self>, generation: u64) {
        let now = self.now();
        let given = self.step(now, |state| {
            if state.generation != generation {
                return None;
            }
            state.lease.release(now);
            match state.phase {
                Phase::Queued => self.enter(state, Phase::exhausted(AcquireFailure::Abandoned)),
                Phase::Acquiring | Phase::Held => self.enter(state, Phase::Releasing),
                _ => {}
            }
            state.handed_over.take()
        });
        if let Some(given) = given {
            // Nobody has taken it.
            given.cell().release(given.generation());
        }
    }

    /// Ends the lease because nobody can drive it any more.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.step(self.now(), |state| self.give_up(state));
    }

    /// Ends the lease if the lock is not held yet.
    pub(crate) fn stop_acquiring(self: &Arc<Self>) {
        self.step(self.now(), |state| {
            if state.phase.is_pending() {
                self.give_up(state);
            }
        });
    }

    /// Starts an extension now; returns a ticket for [`Self::extension`], or `None` if the
    /// lock cannot be extended.
    pub(crate) fn extend(self: &Arc<Self>, generation: u64) -> Option<u64> {
        let now = self.now();
        self.step(now, |state| {
            if state.generation != generation {
                return None;
            }
            let ticket = state.extensions;
            state.lease.extend(now).then_some(ticket)
        })
    }

    /// Notes that the holder has taken the lock, which is renewed from now on. Returns whether the
    /// lock is still held.
    pub(crate) fn claim(self: &Arc<Self>, generation: u64) -> bool {
        let now = self.now();
        self.step(now, |state| {
            if state.generation != generation {
                return false;
            }
            state.lease.claim(now);
            state.lease.valid_until(now).is_some()
        })
    }

    // What the holder asks.

    /// Waits until the lock is held, or will not be.
    pub(crate) fn poll_acquired(&self, cx: &Context<'_>) -> Poll<Phase> {
        let mut state = self.state();
        if state.phase.is_pending() {
            state.waiting = Some(cx.waker().clone());
            Poll::Pending
        } else {
            Poll::Ready(state.phase)
        }
    }

    /// Waits until the extension with this ticket has ended. Returns whether it succeeded, or
    /// `None` if the lock is not held any more.
    pub(crate) async fn extension(&self, generation: u64, ticket: u64) -> Option<bool> {
        self.wait_for(|state| {
            if state.phase_in(generation) != Phase::Held {
                Some(None)
            } else if state.extensions > ticket {
                Some(Some(state.extended))
            } else {
                None
            }
        })
        .await
    }

    /// Waits until the lock is neither held nor being acquired or released.
    pub(crate) async fn ended(&self) -> Phase {
        self.wait_for(|state| state.phase.has_ended().then_some(state.phase))
            .await
    }

    /// Waits until the lock is not held any more, for whatever reason.
    pub(crate) async fn not_held(&self, generation: u64) -> Phase {
        self.wait_for(|state| {
            let phase = state.phase_in(generation);
            (phase != Phase::Held).then_some(phase)
        })
        .await
    }

    pub(crate) fn phase(&self, generation: u64) -> Phase {
        self.state().phase_in(generation)
    }

    /// Returns the end of validity, if the lock is held now by the clock, in this generation.
    pub(crate) fn valid_until(&self, now: Timestamp, generation: u64) -> Option<Timestamp> {
        let state = self.state();
        let is_ours = state.generation == generation;
        is_ours.then(|| state.lease.valid_until(now)).flatten()
    }

    /// Takes what was handed over to this lease.
    pub(crate) fn take_handed_over(&self) -> Option<Hold> {
        self.state().handed_over.take()
    }

    /// Returns why nodes did not agree to the last extension or release, or to the last attempt
    /// to which any node has objected.
    pub(crate) fn reports(&self) -> NodeReports {
        self.shared.reports(&self.state().objections)
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.state().fence
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.state().lease.attempts()
    }

    pub(crate) fn token(&self) -> Token {
        self.state().lease.token()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared.is_shut_down()
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.shared.quorum
    }

    /// Returns how each node is.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        self.shared.nodes()
    }

    /// Returns in how long a majority may vote, if nothing but quarantines is in its way.
    pub(crate) fn quorum_in(&self) -> Option<Duration> {
        status::quorum_in(&self.nodes(), self.quorum())
    }

    /// Returns whether another lease of this process holds one of the keys.
    pub(crate) fn is_held_by_another(&self) -> bool {
        let holds = |key: &Key| {
            let turn = self.shared.queue.turn(key.as_bytes());
            turn.is_some_and(|it| it.id != self.id && it.state().phase == Phase::Held)
        };
        self.keys.iter().any(holds)
    }

    pub(crate) fn outage(&self) -> &Outage {
        &self.shared.outage
    }

    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    fn ttl(&self) -> Ttl {
        self.config.validity.ttl()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    // Private.

    async fn wait_for<T>(&self, mut ready: impl FnMut(&CellState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that no change falls between the two.
            changed.as_mut().enable();
            if let Some(value) = ready(&self.state()) {
                return value;
            }
            changed.await;
        }
    }

    /// Changes the lease, then sends what is to be sent and tells what is to be told.
    ///
    /// Sending happens under the lock: to each lane, requests of one lease go in the order in
    /// which the machine wants them. (A lane's inbox never blocks.)
    fn step<T>(self: &Arc<Self>, now: Timestamp, change: impl FnOnce(&mut CellState) -> T) -> T {
        let mut state = self.state();
        let before = (state.phase, state.extensions, state.generation);
        let (held_since, turn) = (state.held_since, state.turn);
        let result = change(&mut state);
        self.transmit(&mut state, now);
        self.apply_events(&mut state, now);
        self.reschedule(&mut state, now);
        let changed = before != (state.phase, state.extensions, state.generation);
        let leaves = before.0.is_in_line() && !state.phase.is_in_line();
        // Wake outside of the lock: the woken task takes it first thing.
        let waiting = if state.phase.is_pending() {
            None
        } else {
            state.waiting.take()
        };
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
        if changed {
            self.changed.notify_waiters();
        }
        if leaves {
            self.leave(now, held_since, turn);
        }
        result
    }

    /// Warns if a node would have dropped the key before the time that the lock relies on, or long
    /// after it. (A node that missed the extension before is told of too: its key is as short.) The
    /// keys of one node go wrong together, so one of them speaks for all.
    fn look_at_remaining(
        &self,
        state: &CellState,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        remaining: Duration,
    ) {
        let Some(relied_on) = state.relied_on.filter(|_| state.watched == Some(round)) else {
            return;
        };
        // The node has looked earlier, when there was more left; and validity ends before the keys
        // do, by the drift allowance.
        let needed = relied_on.saturating_duration_since(now);
        let lane = &self.shared.lanes[node.index()];
        let node = lane.address();
        if remaining < needed {
            if let Some(withheld) = lane.keys_too_short().due(now) {
                tracing::warn!(
                    %node, ?remaining, ?needed, withheld,
                    "the key had less time left than the lock relies on: the node's clock has \
                     stepped, somebody has shortened it, or the node has missed an extension"
                );
            }
        } else if remaining > self.ttl().as_duration() + CLOCK_STEP
            && let Some(withheld) = lane.keys_too_long().due(now)
        {
            tracing::warn!(
                %node, ?remaining, ttl = ?self.ttl(), withheld,
                "the key had more time left than it was given: the node's clock has stepped back, or \
                 somebody has extended it"
            );
        }
    }

    /// Tells the keeper when to call back.
    fn reschedule(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        let due = state.next_due();
        let calls_early_enough = match (state.due, due) {
            // A call that comes too early does nothing but ask for the next one.
            (Some(known), Some(due)) => known <= due,
            (known, due) => known == due,
        };
        if calls_early_enough {
            return;
        }
        let kept = self.shared.timers.reschedule(self, state.due, due);
        state.due = due;
        if kept.is_err() {
            state.due = None;
            self.give_up(state);
            self.transmit(state, now);
            self.apply_events(state, now);
        }
    }

    fn transmit(self: &Arc<Self>, state: &mut CellState, now: Timestamp) {
        while let Some(transmit) = state.lease.poll_transmit() {
            let is_watched = match transmit.operation {
                // While the lock is held, this is a repair.
                Operation::Acquire { .. } | Operation::Fence { .. } => {
                    state.phase == Phase::Acquiring
                }
                Operation::Extend { .. } => true,
                // Not what follows a failed attempt or a loss: their reasons are still wanted.
                Operation::Release { .. } => state.phase == Phase::Releasing,
                _ => false,
            };
            if matches!(transmit.operation, Operation::Extend { .. }) {
                state.relied_on = state.lease.valid_until(now);
            }
            if is_watched {
                state.watched = Some(transmit.round);
                // An attempt that is cut short before any node has objected fails for the reasons
                // of the one before.
                state.objections_are_old = true;
                if state.phase != Phase::Acquiring {
                    state.objections.clear();
                }
            }
            let command = Command::for_all(self.keys.clone(), transmit.operation);
            for node in transmit.nodes.iter() {
                let origin = Origin {
                    requester: Arc::clone(self),
                    round: transmit.round,
                };
                if self.shared.lanes[node.index()]
                    .send(command.clone(), origin)
                    .is_ok()
                {
                    continue;
                }
                // The lane's runtime is gone; nothing will be sent.
                if matches!(transmit.operation, Operation::Release { .. })
                    && self.set_requests.was_sent(node)
                {
                    self.shared.undeliverable.fetch_add(1, Ordering::Relaxed);
                }
                if is_watched {
                    let gone = NodeError::Unreachable("the runtime has shut down".into());
                    state.object(node, now, Err(gone), Eligibility::ALWAYS);
                }
                let (round, worth) = (transmit.round, Eligibility::ALWAYS);
                let refused = Reply::Refused;
                state.lease.handle_reply(now, round, node, refused, worth);
            }
        }
    }

    fn apply_events(&self, state: &mut CellState, now: Timestamp) {
        while let Some(event) = state.lease.poll_event() {
            match event {
                Event::Acquired { fence, .. } => {
                    self.start_turn(state, now);
                    state.fence = fence;
                    state.held_since = Some(now);
                    self.enter(state, Phase::Held);
                }
                Event::Exhausted { failure, attempts } => {
                    self.start_turn(state, now);
                    self.enter(state, Phase::Exhausted { failure, attempts });
                }
                Event::Extended { .. } => {
                    state.extensions += 1;
                    state.extended = true;
                }
                Event::ExtendFailed { .. } => {
                    state.extensions += 1;
                    state.extended = false;
                    tracing::debug!(
                        nodes = %self.shared.reports(&state.objections),
                        "extension failed, will be tried again"
                    );
                }
                Event::Lost(reason) => {
                    // The token tells which, and unlike the key says nothing about anybody.
                    tracing::warn!(%reason, token = %state.lease.token(), "lock lost");
                    self.enter(state, Phase::Lost(reason));
                }
                Event::Released(verdict) => self.enter(state, Phase::Released(verdict)),
                // The enum may grow; what this driver does not know, it cannot tell.
                _ => {}
            }
        }
    }

    /// Starts a turn of this process, if others were let go first.
    fn start_turn(&self, state: &mut CellState, now: Timestamp) {
        if mem::take(&mut state.yields) {
            let was_contended = state.lease.was_contended();
            let (turns, key) = (&self.shared.turns, self.keys.first());
            state.turn = Some(turns.start(key, now, was_contended, self.turn_length()));
        }
    }

    /// Ends a lease that is acquired, held or only wanted.
    fn give_up(&self, state: &mut CellState) {
        state.lease.abandon();
        if state.phase == Phase::Queued {
            self.enter(state, Phase::exhausted(AcquireFailure::Abandoned));
        }
    }

    fn enter(&self, state: &mut CellState, phase: Phase) {
        match (state.phase == Phase::Held, phase == Phase::Held) {
            (false, true) => self.shared.held.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.shared.held.fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => 0,
        };
        state.phase = phase;
    }

    fn state(&self) -> MutexGuard<'_, CellState> {
        self.state.lock()
    }
}

// As for `Shared`.
impl UnwindSafe for LeaseCell {}
impl RefUnwindSafe for LeaseCell {}

impl fmt::Debug for LeaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseCell")
            .field("keys", &self.keys)
            .field("phase", &self.state().phase)
            .finish_non_exhaustive()
    }
}
