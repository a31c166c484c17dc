//! The inputs of a lease: replies, withdrawals, time.

use super::{End, Lease, RoundId, State};
use crate::{Eligibility, NodeId, Reply, Timestamp, Withdrawal};

impl Lease {
    /// Takes a node's reply to the request of this round, with what the node's votes are worth at the
    /// time of the reply ([`Voter::eligibility`](crate::Voter::eligibility)).
    pub fn handle_reply(
        &mut self,
        now: Timestamp,
        id: RoundId,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) {
        self.expire(now);
        match &mut self.state {
            State::Acquiring(it) if it.id == id => {
                let verdict = it.round.handle_reply(now, node, reply, eligibility);
                self.conclude_attempt(now, verdict);
            }
            State::Held(_) => {
                let loss = self.held(now).and_then(|(held, mut cx)| {
                    held.handle_reply(&mut cx, id, node, reply, eligibility)
                });
                if let Some(reason) = loss {
                    self.lose(reason);
                }
            }
            State::Releasing(it) if it.id == id => {
                if let Some(verdict) = it.round.confirm(node, reply) {
                    self.end(End::Released(verdict));
                }
            }
            State::Backoff(it) if it.key_watch.as_ref().is_some_and(|watch| watch.id == id) => {
                self.handle_probe_reply(now, node, reply);
            }
            State::InLine(it) if it.look.as_ref().is_some_and(|look| look.id == id) => {
                self.handle_look_reply(now, node, reply);
            }
            // A reply to an earlier round.
            _ => {}
        }
    }

    /// Takes back a node's votes in the round that is under way, and in the round that a held lock rests
    /// on, because another server may have given them.
    ///
    /// The lock goes on if the votes of other nodes are enough. Otherwise an attempt fails, an extension
    /// is tried again, and a held lock is lost and released on all nodes. The reason is
    /// [`LossReason::VotesWithdrawn`](crate::LossReason::VotesWithdrawn).
    pub fn handle_withdrawal(&mut self, now: Timestamp, node: NodeId, withdrawal: Withdrawal) {
        self.expire(now);
        let Withdrawal { since, eligibility } = withdrawal;
        match &mut self.state {
            // Each node that accepts a fence holds our key, so these votes speak for the keys too.
            State::Acquiring(it) => {
                let verdict = it.round.withdraw(now, node, eligibility);
                self.conclude_attempt(now, verdict);
            }
            State::Held(_) => {
                let loss = self
                    .held(now)
                    .and_then(|(held, mut cx)| held.withdraw(&mut cx, node, since, eligibility));
                if let Some(reason) = loss {
                    self.lose(reason);
                }
            }
            // A probe wins nothing, nor does a release.
            State::Idle { .. }
            | State::Backoff(_)
            | State::InLine(_)
            | State::Releasing(_)
            | State::Ended(_) => {}
        }
    }

    /// Does what is due at `now`. Call it at [`poll_timeout`](Self::poll_timeout), or any time.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.expire(now);
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.state {
            State::Acquiring(it) => {
                let verdict = it.round.give_up(now, it.retry.failure);
                self.conclude_attempt(now, verdict);
            }
            State::Backoff(_) => self.retry(now),
            State::InLine(_) => self.end_line(now),
            State::Held(_) => {
                if let Some((held, mut cx)) = self.held(now) {
                    held.renew(&mut cx);
                }
            }
            State::Releasing(it) => {
                if let Some(verdict) = it.round.give_up() {
                    self.end(End::Released(verdict));
                }
            }
            State::Idle { .. } | State::Ended(_) => {}
        }
    }
}
