//! A lease that several parties share: its holder, the lanes that bring replies, the timers.

mod cell;
mod extensions;
mod held_lease;
mod holder;
mod stage;
mod state;
mod turns;
mod watched_round;

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use redlock_core::{
    Eligibility, FencingToken, LossReason, NodeId, Quorum, RoundId, Timestamp, Token, Ttl,
    Withdrawal,
};

use self::stage::Stage;
pub(crate) use self::{
    cell::{LeaseCell, LeaseRequest, Shared},
    extensions::ExtensionOutcome,
    held_lease::HeldLease,
    stage::End,
    state::WaitOutcome,
};
use crate::{
    Key, NodeReports, OptionsError,
    engine::{
        lane::{Requester, SetRequests},
        timers::Timed,
        warning::Outage,
    },
    key::KeySet,
    node::{Answer, Vote, reply_of, status},
};

impl Requester for Arc<LeaseCell> {
    fn handle_answer(
        &self,
        now: Timestamp,
        round: RoundId,
        node: NodeId,
        answer: Answer,
        eligibility: Eligibility,
    ) {
        self.update(now, |state| {
            let reply = reply_of(&answer, now);
            if let Ok(Vote::Extended { remaining }) = answer {
                self.check_remaining(state, now, round, node, remaining);
            }
            let watched = &mut state.watched;
            watched.note_answer(now, round, node, answer, eligibility);
            let lease = &mut state.lease;
            lease.handle_reply(now, round, node, reply, eligibility);
        });
    }

    fn set_requests(&self) -> &SetRequests {
        &self.set_requests
    }

    fn ttl(&self) -> Ttl {
        self.state().lease.longest_ttl()
    }
}

impl Timed for Arc<LeaseCell> {
    fn id(&self) -> u64 {
        LeaseCell::id(self)
    }

    fn handle_timeout(&self, now: Timestamp) {
        let lapses = self.update(now, |state| {
            // The timers have forgotten this deadline, unless there is a new one. (Clearing one never fails.)
            let due = state.due.take();
            let _ = self.shared.timers.reschedule(self, due, None);
            let lapses = state.handle_queue_timeout(now);
            state.lease.set_notified(self.shared.is_notified());
            state.lease.handle_timeout(now);
            lapses
        });
        if lapses {
            self.lapse(now);
        }
    }

    fn abandon(&self) {
        self.update(self.now(), |state| state.abandon());
    }
}

impl LeaseCell {
    // Inputs.

    /// Takes the news that votes of a node count for nothing.
    pub(crate) fn handle_withdrawal(self: &Arc<Self>, node: NodeId, withdrawal: Withdrawal) {
        let now = self.now();
        self.update(now, |state| {
            state.lease.handle_withdrawal(now, node, withdrawal);
        });
    }

    /// Takes the news that a key is gone from a node.
    pub(crate) fn handle_freed(self: &Arc<Self>, node: NodeId) {
        let now = self.now();
        self.update(now, |state| {
            if self.keys.has_several() {
                // The other keys may still be there.
                state.lease.probe_again(node);
            } else {
                state.lease.handle_freed(now, node);
            }
        });
    }

    /// Takes the news that there is a new connection to a node.
    pub(crate) fn handle_connection(self: &Arc<Self>, node: NodeId) {
        self.update(self.now(), |state| state.lease.probe_again(node));
    }

    /// Ends the lease if the lock is not held yet.
    pub(crate) fn stop_acquiring(self: &Arc<Self>) {
        self.update(self.now(), |state| {
            if state.stage().is_pending() {
                state.abandon();
            }
        });
    }

    // What the holder asks, or the task that waits for the lock.

    /// Waits until the lock is held, or will not be held.
    pub(crate) fn poll_acquired(&self, cx: &Context<'_>) -> Poll<WaitOutcome<Arc<Self>>> {
        self.state().poll_acquired(cx.waker())
    }

    /// Returns why nodes did not agree to the last extension or release, or to the last attempt to which any node has
    /// objected.
    pub(crate) fn reports(&self) -> NodeReports {
        self.shared.reports(self.state().watched.objections())
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.state().fence
    }

    /// Returns the addresses of the nodes whose votes won the lock.
    pub(crate) fn granted_by(&self) -> Vec<Arc<str>> {
        let nodes = self.state().granted_by;
        let address = |node: NodeId| Arc::clone(self.shared.lanes[node.index()].address());
        nodes.iter().map(address).collect()
    }

    /// Checks the ttl of an extension.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<Ttl, OptionsError> {
        self.shared.check_ttl(self.config.validity, ttl)
    }

    /// Returns the ttl that the lock was acquired with.
    pub(crate) fn own_ttl(&self) -> Ttl {
        self.config.validity.ttl()
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.state().lease.attempts()
    }

    pub(crate) fn token(&self) -> Token {
        self.state().lease.token()
    }

    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// Returns whether the lease waits for other leases of this process.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state().stage(), Stage::Queued(_))
    }

    /// Returns whether the lease holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state().stage(), Stage::Held(_))
    }

    /// Returns whether the lock was lost because the runtime has ended.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(
            self.state().stage(),
            Stage::Ended(End::Lost(LossReason::Abandoned))
        )
    }

    /// Returns whether another lease of this process holds one of the keys.
    pub(crate) fn is_held_by_another(&self) -> bool {
        let holds = |key: &Key| {
            let turn = self.shared.queue.turn(key.as_bytes());
            turn.is_some_and(|it| it.id() != self.id() && it.is_held())
        };
        self.keys.iter().any(holds)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared.is_shut_down()
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.shared.quorum
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns after what time a majority may vote, or `None` if that depends on more than quarantines.
    pub(crate) fn quorum_in(&self) -> Option<Duration> {
        status::quorum_in(&self.shared.nodes(), self.quorum())
    }

    pub(crate) fn outage(&self) -> &Outage {
        &self.shared.outage
    }
}
