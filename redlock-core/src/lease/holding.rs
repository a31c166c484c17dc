//! While the lock is held: extensions, repair, loss.

use super::{Agreement, Event, Lease, LeaseConfig, LossReason, Operation, RoundId, State};
use crate::{
    Eligibility, Extend, ExtendVerdict, FencingToken, NodeId, NodeSet, Reply, Timestamp, Token, Ttl,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) token: Token,
    /// The start of the attempt that won, or when the lock was handed over: from when on the longest
    /// hold counts.
    pub(super) held_since: Timestamp,
    pub(super) valid_until: Timestamp,
    /// Until when a majority keeps the key: later than `valid_until` by the drift allowance.
    pub(super) keys_until: Timestamp,
    /// The votes by which it is valid until then.
    pub(super) rests_on: Agreement,
    pub(super) fenced: Option<Fenced>,
    /// The last extension failed.
    pub(super) renewal_fails: bool,
    /// The holder has taken the lock. Renewal starts then.
    pub(super) is_claimed: bool,
    pub(super) extension: Extension,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extension {
    /// Nothing is under way; renewal is due then, if at all. The last round is kept for nodes
    /// that report late that they lost our key: it is put back on them, or they tip the scales.
    Idle {
        due: Option<Timestamp>,
        last: Option<(RoundId, Extend)>,
    },
    Running {
        id: RoundId,
        ttl: Ttl,
        round: Extend,
    },
}

/// The fencing token of a held lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fenced {
    fence: FencingToken,
    /// The votes by which it is ours.
    by: Agreement,
    /// It was settled when the key was set already, so a node may have the one without the other.
    is_after_the_key: bool,
}

impl Fenced {
    /// A token that went with the key: no node has set the one without the other.
    pub(super) fn with_the_key(fence: FencingToken, by: Agreement) -> Self {
        Self {
            fence,
            by,
            is_after_the_key: false,
        }
    }

    /// A token that went after the key, in a round of its own.
    pub(super) fn after_the_key(fence: FencingToken, by: Agreement) -> Self {
        Self {
            fence,
            by,
            is_after_the_key: true,
        }
    }

    pub(super) fn fence(&self) -> FencingToken {
        self.fence
    }

    /// Returns the nodes that may have our key and a smaller counter.
    fn behind(&self) -> NodeSet {
        if self.is_after_the_key {
            self.by.others()
        } else {
            NodeSet::EMPTY
        }
    }
}

impl Held {
    pub(super) fn new(
        token: Token,
        held_since: Timestamp,
        valid_until: Timestamp,
        keys_until: Timestamp,
        due: Option<Timestamp>,
        rests_on: Agreement,
        fenced: Option<Fenced>,
    ) -> Self {
        Self {
            token,
            held_since,
            valid_until,
            keys_until,
            rests_on,
            fenced,
            renewal_fails: false,
            is_claimed: false,
            extension: Extension::Idle { due, last: None },
        }
    }

    /// Counts a vote that comes after the lock was won or extended by others.
    pub(super) fn handle_late_reply(
        &mut self,
        now: Timestamp,
        id: RoundId,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) {
        let fenced_by = self.fenced.as_mut().map(|it| &mut it.by);
        for agreement in [Some(&mut self.rests_on), fenced_by].into_iter().flatten() {
            agreement.handle_reply(now, id, node, reply, eligibility);
        }
    }

    /// Takes a node's votes out, if they were counted at `since` or later. Returns whether a quorum is left.
    pub(super) fn withdraw(&mut self, node: NodeId, since: Timestamp) -> bool {
        let fenced_by = self.fenced.as_mut().map(|it| &mut it.by);
        self.rests_on.withdraw(node, since) && fenced_by.is_none_or(|it| it.withdraw(node, since))
    }

    /// Returns the ttl to send for a key that is to live for `ttl` from `now` on: long enough that no
    /// node drops the key before the time that the lock relies on. A node that sets the time to live,
    /// whatever it was, then does no harm.
    fn ttl_to_send(&self, now: Timestamp, ttl: Ttl) -> Ttl {
        let relied_on = self.keys_until.saturating_duration_since(now);
        Ttl::at_least(relied_on).max(ttl)
    }

    /// Returns when something is to be done if no reply comes before.
    pub(super) fn timeout(&self) -> Timestamp {
        match &self.extension {
            Extension::Idle { due: Some(due), .. } if self.is_claimed => self.valid_until.min(*due),
            Extension::Idle { .. } | Extension::Running { .. } => self.valid_until,
        }
    }
}

impl Lease {
    /// Declares a held lock lost when its validity is over. Every input starts with this, so that
    /// nothing can be decided on a validity that has ended.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if let State::Held(held) = &self.state
            && now >= held.valid_until
        {
            // Asked of the end of validity, since this may be noticed much later.
            let keep_alive = self.config.keep_alive;
            self.lose(if keep_alive.allows(held.held_since, held.valid_until) {
                LossReason::Expired
            } else {
                LossReason::MaxHold
            });
        }
    }

    /// Starts an extension of a held lock, unless one for at least this ttl is under way. Returns whether
    /// one is now.
    pub(super) fn start_extension(&mut self, now: Timestamp, ttl: Ttl) -> bool {
        let LeaseConfig {
            quorum,
            validity,
            keep_alive,
            ..
        } = self.config;
        let State::Held(held) = &mut self.state else {
            return false;
        };
        // Otherwise renewal would be put off by an extension that does not last until then.
        let ttl = if keep_alive.renews() {
            ttl.max(validity.ttl())
        } else {
            ttl
        };
        if matches!(held.extension, Extension::Running { ttl: running, .. } if running >= ttl) {
            return true;
        }
        if !keep_alive.allows(held.held_since, now) {
            // Renewal has ended, and with it its timer.
            if let Extension::Idle { due, .. } = &mut held.extension {
                *due = None;
            }
            return false;
        }
        let (token, valid_until) = (held.token, held.valid_until);
        let sent = held.ttl_to_send(now, ttl);
        self.longest_ttl = self.longest_ttl.max(sent);
        let id = self.send(quorum.all(), Operation::Extend { token, ttl: sent });
        if let State::Held(held) = &mut self.state {
            let validity = validity.for_ttl(ttl);
            let round = Extend::new(quorum, validity, token, valid_until, now);
            held.extension = Extension::Running { id, ttl, round };
        }
        true
    }

    pub(super) fn conclude_extend(&mut self, now: Timestamp, verdict: ExtendVerdict) {
        let keep_alive = self.config.keep_alive;
        let State::Held(held) = &mut self.state else {
            return;
        };
        let idle = Extension::Idle {
            due: None,
            last: None,
        };
        let Extension::Running { id, ttl, round } = core::mem::replace(&mut held.extension, idle)
        else {
            return;
        };
        match verdict {
            ExtendVerdict::KeysLost => self.lose(LossReason::KeysLost),
            ExtendVerdict::Extended { valid_until } => {
                held.valid_until = valid_until;
                let keys_until = round.start().saturating_add(ttl.as_duration());
                held.keys_until = held.keys_until.max(keys_until);
                held.rests_on = Agreement::new(id, round.tally(), round.tally().granted(), now);
                held.renewal_fails = false;
                let lost_on = round.lost_on();
                held.extension = Extension::Idle {
                    due: keep_alive.next_extension(held.held_since, round.start()),
                    last: Some((id, round)),
                };
                self.repair(now, lost_on);
                self.raise_counters(lost_on);
                self.events.push_back(Event::Extended { valid_until });
            }
            ExtendVerdict::Failed => {
                let valid_until = held.valid_until;
                held.renewal_fails = true;
                held.extension = Extension::Idle {
                    due: keep_alive.next_try(held.held_since, now),
                    last: Some((id, round)),
                };
                self.events.push_back(Event::ExtendFailed { valid_until });
            }
        }
    }

    /// Puts our key back on nodes that lost it, after a majority has confirmed the lock without
    /// them, and the fencing counter with it. It wins nothing by itself (the reply is not counted),
    /// but keeps the lock alive, and its token in force, when nodes restart one after the other.
    ///
    /// A node whose counter is larger keeps it. One where another's key stands keeps that; the next
    /// extension finds our key missing there, and tries again.
    pub(super) fn repair(&mut self, now: Timestamp, nodes: NodeSet) {
        if let State::Held(held) = &self.state
            && !nodes.is_empty()
        {
            let operation = Operation::Acquire {
                token: held.token,
                ttl: held.ttl_to_send(now, self.config.validity.ttl()),
                fence: held.fenced.as_ref().map(Fenced::fence),
            };
            self.send(nodes, operation);
        }
    }

    /// Raises the fencing counter on nodes that have our key, but did not confirm the round that
    /// settled the token.
    ///
    /// Together with [`Self::repair`] this leaves no node with our key and a smaller counter: where
    /// the two were set together, the key cannot be there without the counter, whatever the node
    /// has forgotten; where the token came after the key, it is sent again. So the token outlives
    /// the loss of any one node, and not only of those that did not vote for it.
    fn raise_counters(&mut self, lost_on: NodeSet) {
        if let State::Held(held) = &self.state
            && let Some(fenced) = &held.fenced
        {
            let (token, fence) = (held.token, fenced.fence);
            let nodes = fenced.behind().difference(lost_on);
            if !nodes.is_empty() {
                self.send(nodes, Operation::Fence { token, fence });
            }
        }
    }

    pub(super) fn lose(&mut self, reason: LossReason) {
        if let State::Held(held) = &self.state {
            let token = held.token;
            self.state = State::Closed;
            // The lock is over for us; what is left of its keys only keeps the others waiting.
            self.send_release(token);
            self.events.push_back(Event::Lost(reason));
        }
    }
}
