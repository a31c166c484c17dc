//! The inputs of a lease, from the lanes and the timers.

use std::{sync::Arc, time::Duration};

use redlock_core::{Eligibility, ExpiryAnomaly, NodeId, RoundId, Timestamp, Ttl, Withdrawal};

use super::{LeaseCell, state::CellState};
use crate::{
    engine::{
        lane::{Requester, SetRequests},
        timers::Timed,
    },
    log,
    node::{Answer, Vote, reply_of},
    shown_time::ShownTime,
};

impl Requester for LeaseCell {
    fn handle_answer(
        self: Arc<Self>,
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

impl Timed for LeaseCell {
    fn id(&self) -> u64 {
        self.id()
    }

    fn handle_timeout(self: &Arc<Self>, now: Timestamp) {
        let looks = self.update(now, |state| {
            // Unless there is a new one. (Clearing one never fails.)
            let _ = self.client.timers.reschedule(state.due.take(), None, self);
            state.lease.set_notified(self.client.is_notified());
            state.lease.handle_timeout(now);
            self.handle_line_timeout(state, now);
            self.check_wait(state, now)
        });
        if looks {
            self.look_again(now);
        }
    }

    fn abandon(self: &Arc<Self>) {
        self.update(self.now(), |state| state.lease.abandon());
    }
}

impl LeaseCell {
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
            if self.keys().has_several() || self.keys.slots().is_some() {
                // Other keys may still be there.
                state.lease.probe_again(node);
            } else {
                state.lease.handle_freed(now, node, None);
            }
            // The key of readers changes whenever one of them comes, goes or is extended.
            if !state.lease.is_reader() {
                state.lease.handle_key_changed(now, node);
            }
        });
    }

    /// Takes the news that a key may be free on a node.
    pub(super) fn probe_again(self: &Arc<Self>, node: NodeId) {
        self.update(self.now(), |state| state.lease.probe_again(node));
    }

    /// Takes the news that all keys are gone from a node, and the lines too.
    pub(crate) fn handle_flush(self: &Arc<Self>, node: NodeId) {
        self.handle_freed(node);
        let now = self.now();
        self.update(now, |state| {
            state.lease.handle_key_changed(now, node);
            self.rejoin_at(state, now, node);
        });
    }

    /// Takes the news that there is a new connection to a node.
    pub(crate) fn handle_connection(self: &Arc<Self>, node: NodeId) {
        let now = self.now();
        self.update(now, |state| {
            state.lease.probe_again(node);
            self.rejoin_at(state, now, node);
        });
    }

    /// Ends the lease if the lock is not held yet.
    pub(crate) fn stop_acquiring(self: &Arc<Self>) {
        self.update(self.now(), |state| {
            if state.is_pending() {
                state.lease.abandon();
            }
            if state.is_undecided() {
                state.lease.release(self.now());
            }
        });
    }

    /// Warns if a node would have dropped the key too early or too late.
    ///
    /// The keys of one node go wrong together, so one warning speaks for all.
    pub(super) fn check_remaining(
        &self,
        state: &CellState,
        now: Timestamp,
        extension: RoundId,
        node: NodeId,
        remaining: Duration,
    ) {
        let lane = &self.client.lanes[node.index()];
        let node = &lane.address;
        match state.lease.judge_remaining(now, extension, remaining) {
            Some(ExpiryAnomaly::TooShort { needed }) => {
                if let Some(withheld) = lane.expires_too_early.due(now) {
                    log::warn!(
                        label = state.label(), keys = self.shown_keys(), token = %state.lease.token(),
                        %node, remaining = %ShownTime(remaining), needed = %ShownTime(needed), withheld,
                        "the key had less time left than the lock relies on: the node's clock has stepped, \
                         somebody has shortened the key's life, or the node has missed an extension"
                    );
                }
            }
            Some(ExpiryAnomaly::TooLong { longest }) => {
                if let Some(withheld) = lane.expires_too_late.due(now) {
                    log::warn!(
                        label = state.label(), keys = self.shown_keys(), token = %state.lease.token(),
                        %node, remaining = %left(remaining), ttl = %ShownTime(longest.as_duration()), withheld,
                        "the key had more time left than it was given: the node's clock has stepped back, or \
                         somebody has extended the key's life"
                    );
                }
            }
            _ => {}
        }
    }
}

/// Returns how long a key lives yet, for a line of the log.
fn left(remaining: Duration) -> String {
    match remaining {
        Duration::MAX => "none, as it has no end".into(),
        time => ShownTime(time).to_string(),
    }
}
