//! The whole life of a lock, from the first attempt to its release or loss.

mod acquiring;
mod agreement;
mod config;
mod event;
mod holding;
mod proposals;
mod transmit;
mod vigil;
mod watching;

use alloc::collections::VecDeque;

pub use config::LeaseConfig;
pub use event::{Event, LossReason, Standing};
pub use transmit::{Operation, RoundId, Transmit};

use self::{
    acquiring::{Budget, round_deadline},
    agreement::Agreement,
    holding::{Extension, Held},
    proposals::Proposals,
    vigil::Vigil,
};
use crate::{
    Acquire, AcquireFailure, Eligibility, Fence, FencingToken, NodeId, NodeSet, Nonce, Pause,
    Release, ReleaseVerdict, Reply, Timestamp, Token, Ttl, Withdrawal,
};

/// One client's attempt to hold one lock: acquiring, retrying, renewing, releasing.
///
/// ```text
///            acquire            quorum in time              release
///    Idle ----------> Acquiring ---------------> Held ---------------> Releasing
///                      |  ^  |                   ^ |  |                   |
///               failed |  |  | counters ahead    | |  | validity over,    | quorum, or
///                      v  |  v      accepted     | |  | keys lost         | nobody left
///                 Backoff |  Fencing ------------+ |  v                   v
///                      |  |  | failed              |  Closed (Lost)     Closed (Released)
///         budget spent |  +--+ delay over, or      |
///                      v       key seen free       +-- extension due: Extend round, still Held
///                    Closed (Exhausted)
/// ```
///
/// A lease does no I/O and reads no clock. Its driver calls commands ([`acquire`](Self::acquire),
/// [`extend`](Self::extend), [`release`](Self::release)) and inputs
/// ([`handle_reply`](Self::handle_reply), [`handle_withdrawal`](Self::handle_withdrawal),
/// [`handle_timeout`](Self::handle_timeout)), and after each of them drains [`poll_transmit`](Self::poll_transmit) and
/// [`poll_event`](Self::poll_event) and arms a timer for [`poll_timeout`](Self::poll_timeout).
///
/// Whatever it is fed, it does not panic: a command that does not fit the state, a repeated or
/// stale reply and a spurious timeout change nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    config: LeaseConfig,
    nonce: Nonce,
    attempts: u32,
    rounds: u32,
    /// How others go first.
    pause: Option<Pause>,
    /// While it looked at the key, something happened to it.
    saw_others: bool,
    /// What its attempts propose, if the lock is fenced.
    proposals: Option<Proposals>,
    longest_ttl: Ttl,
    state: State,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Acquiring {
        id: RoundId,
        round: Acquire,
        budget: Budget,
    },
    Fencing {
        id: RoundId,
        round: Fence,
        /// When the attempt started.
        acquired_at: Timestamp,
        budget: Budget,
    },
    Backoff {
        /// When to try again, or to look again, if nothing happens before.
        until: Timestamp,
        /// Until when not to try, whatever happens.
        not_before: Timestamp,
        budget: Budget,
        /// What is known of the key, if it is watched.
        vigil: Option<Vigil>,
    },
    Held(Held),
    Releasing {
        id: RoundId,
        round: Release,
        /// When the keys are gone by themselves.
        until: Timestamp,
    },
    Closed,
}

impl Lease {
    /// Creates a lease that holds nothing yet. The `nonce` must be fresh and random.
    #[must_use]
    pub fn new(config: LeaseConfig, nonce: Nonce) -> Self {
        Self {
            longest_ttl: config.validity.ttl(),
            config,
            nonce,
            attempts: 0,
            rounds: 0,
            pause: None,
            saw_others: false,
            proposals: None,
            state: State::Idle,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // Commands.

    /// Starts to acquire the lock. Changes nothing unless the lease is new.
    ///
    /// No attempt starts at `deadline` or later, and none but the first runs beyond `deadline`. So a
    /// deadline that is reached already means one attempt.
    pub fn acquire(&mut self, now: Timestamp, deadline: Timestamp) {
        if matches!(self.state, State::Idle) {
            let budget = Budget::until(deadline);
            match self.pause.filter(|pause| pause.fits(now, budget.deadline)) {
                Some(pause) => self.watch_first(now, pause, budget),
                None => self.attempt(now, budget),
            }
        }
    }

    /// Starts to acquire the lock with a fencing token, as [`acquire`](Self::acquire) does. Changes
    /// nothing unless the lease is new.
    ///
    /// `proposal` is the wall clock in microseconds, read at `now`; see [`FencingToken::new`]. Each
    /// later attempt proposes anew, by the time that has passed: `proposal` plus the microseconds
    /// from `now` to its start, and always more than any counter that a node has told of.
    ///
    /// Costs one round if the proposal is larger than the counters of a majority of nodes. The
    /// token that was agreed on comes with [`Event::Acquired`].
    pub fn acquire_fenced(&mut self, now: Timestamp, deadline: Timestamp, proposal: FencingToken) {
        if matches!(self.state, State::Idle) {
            self.proposals = Some(Proposals::new(proposal, now));
            self.acquire(now, deadline);
        }
    }

    /// Notes that the holder has taken the lock. Renewal starts now.
    ///
    /// A lock that is held but not claimed is not renewed, so a holder that never runs again keeps
    /// the others out for one validity only. Call this when the holder learns of
    /// [`Event::Acquired`], and when the next holder takes a lock after
    /// [`hand_over`](Self::hand_over). An overdue renewal is then due at once. Changes nothing
    /// unless the lock is held.
    pub fn claim(&mut self, now: Timestamp) {
        self.expire(now);
        if let State::Held(held) = &mut self.state {
            held.is_claimed = true;
        }
    }

    /// Lets others go first when this lease starts, because its process had the lock just now: it makes no
    /// attempt before the pause is over, and then only after those who have waited. Changes nothing if
    /// the lease has started, if its schedule has no [looks](crate::RetrySchedule::with_probes), or if
    /// more than half of its time budget would be gone by then.
    pub fn let_others_first(&mut self, pause: Pause) {
        if matches!(self.state, State::Idle) && self.config.retry.has_probes() {
            self.pause = Some(pause);
        }
    }

    /// Notes that a held lock has passed from one holder to the next without a request to the nodes.
    /// The longest time that it may be held starts anew, and the next holder has to
    /// [claim](Self::claim) it. Returns whether the lock was held.
    ///
    /// It stays one lease, with its token and its validity, so it is as safe as before; that the
    /// holder before does nothing more under it is the driver's to see to.
    pub fn hand_over(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        let State::Held(held) = &mut self.state else {
            return false;
        };
        held.held_since = now;
        held.is_claimed = false;
        if let Extension::Idle { due, .. } = &mut held.extension
            && due.is_none()
        {
            // Renewal had ended, and validity may be over before the next extension would be due.
            let renews = self.config.keep_alive.next_extension(now, now).is_some();
            *due = renews.then_some(now);
        }
        true
    }

    /// Extends a held lock by its own ttl, now instead of when renewal is due. See
    /// [`extend_for`](Self::extend_for).
    pub fn extend(&mut self, now: Timestamp) -> bool {
        self.extend_for(now, self.config.validity.ttl())
    }

    /// Extends a held lock by another ttl than its own. The answer is the next [`Event::Extended`],
    /// [`Event::ExtendFailed`] or [`Event::Lost`]. Costs one round.
    ///
    /// The new validity is `now` plus the ttl less its drift allowance, or the old validity if that is
    /// longer: an extension never shortens. Joins an extension that is under way for at least this ttl,
    /// and takes the place of one for less.
    ///
    /// Later renewals use the lock's own ttl again. They keep what this extension has gained, on the
    /// nodes too, until the own ttl reaches further. A lock that is renewed is extended by at least its
    /// own ttl, whatever is asked for.
    ///
    /// The driver must refuse a ttl that is longer than the longest that the [`Quarantine`] counts with:
    /// a node that restarts could forget such a lock and vote before the lock has ended.
    ///
    /// Returns whether such an extension is under way now. There is none if the lock is not held, or if
    /// the lock was held for the longest time that renewal is allowed to last.
    ///
    /// [`Quarantine`]: crate::Quarantine
    pub fn extend_for(&mut self, now: Timestamp, ttl: Ttl) -> bool {
        self.expire(now);
        self.start_extension(now, ttl)
    }

    /// Ends the lease: releases a held lock, gives up an attempt that is under way. The answer is
    /// [`Event::Released`] if the lock was held; an attempt ends without an event.
    pub fn release(&mut self, now: Timestamp) {
        self.expire(now);
        match &self.state {
            State::Idle | State::Backoff { .. } => self.state = State::Closed,
            State::Acquiring { .. } | State::Fencing { .. } => {
                let token = self.token();
                self.state = State::Closed;
                self.send_release(token);
            }
            State::Held(held) => {
                let token = held.token;
                // What was sent last may still lengthen a key's life to this.
                let until = now.saturating_add(self.longest_ttl.as_duration());
                let id = self.send_release(token);
                self.state = State::Releasing {
                    id,
                    round: Release::new(self.config.quorum, token),
                    until,
                };
            }
            State::Releasing { .. } | State::Closed => {}
        }
    }

    /// Ends the lease because its driver cannot go on: nobody would send, or call back in time.
    /// Whoever waits is told; releases can still be polled, for a driver that can deliver them.
    pub fn abandon(&mut self) {
        match &mut self.state {
            State::Idle | State::Closed => {}
            State::Acquiring { .. } | State::Fencing { .. } => {
                self.send_release(self.token());
                self.exhaust(AcquireFailure::Abandoned);
            }
            State::Backoff { .. } => self.exhaust(AcquireFailure::Abandoned),
            State::Held(_) => self.lose(LossReason::Abandoned),
            State::Releasing { round, .. } => {
                if let Some(verdict) = round.give_up() {
                    self.conclude_release(verdict);
                }
            }
        }
    }

    // Inputs.

    /// Takes a node's reply to the transmission with this id, with what the node's votes are worth
    /// when the reply comes ([`Voter::eligibility`](crate::Voter::eligibility)).
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
            State::Acquiring {
                id: current,
                round,
                budget,
            } if *current == id => {
                let budget = *budget;
                if let Some(verdict) = round.handle_reply(now, node, reply, eligibility) {
                    self.conclude_acquire(now, budget, verdict);
                }
            }
            State::Fencing {
                id: current,
                round,
                budget,
                ..
            } if *current == id => {
                let budget = *budget;
                if let Some(verdict) = round.handle_reply(now, node, reply, eligibility) {
                    self.conclude_fence(now, budget, verdict);
                }
            }
            State::Held(held) => {
                held.handle_late_reply(now, id, node, reply, eligibility);
                match &mut held.extension {
                    Extension::Running {
                        id: current, round, ..
                    } if *current == id => {
                        if let Some(verdict) = round.handle_reply(now, node, reply, eligibility) {
                            self.conclude_extend(now, verdict);
                        }
                    }
                    Extension::Idle {
                        last: Some((last, round)),
                        ..
                    } if *last == id => {
                        let known = round.lost_on();
                        round.handle_reply(now, node, reply, eligibility);
                        let lost_on = round.lost_on().difference(known);
                        if round.is_lost() {
                            self.lose(LossReason::KeysLost);
                        } else if round.has_succeeded() {
                            self.repair(now, lost_on);
                        }
                    }
                    Extension::Running { .. } | Extension::Idle { .. } => {}
                }
            }
            State::Releasing {
                id: current, round, ..
            } if *current == id => {
                if let Some(verdict) = round.handle_reply(node, reply) {
                    self.conclude_release(verdict);
                }
            }
            State::Backoff {
                vigil: Some(vigil), ..
            } if vigil.id == id => {
                self.saw_others |= matches!(reply, Reply::Taken { .. });
                if vigil.handle_reply(node, reply) {
                    self.probe_node(id, node);
                }
                self.retry(now);
            }
            State::Idle
            | State::Acquiring { .. }
            | State::Fencing { .. }
            | State::Backoff { .. }
            | State::Releasing { .. }
            | State::Closed => {}
        }
    }

    /// Takes back what a node has agreed to in a round that is under way, or in the round that a held
    /// lock rests on: another server may have spoken in its place.
    ///
    /// The lock goes on if the votes of other nodes are enough. Otherwise an attempt fails, an
    /// extension is tried again, and a held lock is lost ([`LossReason::VotesWithdrawn`]) and
    /// released on all nodes.
    pub fn handle_withdrawal(&mut self, now: Timestamp, node: NodeId, withdrawal: Withdrawal) {
        self.expire(now);
        let Withdrawal { since, eligibility } = withdrawal;
        match &mut self.state {
            State::Acquiring { round, budget, .. } => {
                let budget = *budget;
                if let Some(verdict) = round.withdraw(now, node, eligibility) {
                    self.conclude_acquire(now, budget, verdict);
                }
            }
            // Each node that accepts a fence holds our key, so these votes speak for the keys too.
            State::Fencing { round, budget, .. } => {
                let budget = *budget;
                if let Some(verdict) = round.withdraw(now, node, eligibility) {
                    self.conclude_fence(now, budget, verdict);
                }
            }
            State::Held(held) => {
                if !held.withdraw(node, since) {
                    self.lose(LossReason::VotesWithdrawn);
                } else if let Extension::Running { round, .. } = &mut held.extension
                    && let Some(verdict) = round.withdraw(now, node, eligibility)
                {
                    self.conclude_extend(now, verdict);
                }
            }
            // Nothing is won by a look or by a release.
            State::Idle | State::Backoff { .. } | State::Releasing { .. } | State::Closed => {}
        }
    }

    /// Takes the news that a key that was looked at is gone from a node, whoever deleted it, or that it
    /// has expired.
    pub fn handle_freed(&mut self, now: Timestamp, node: NodeId) {
        if let State::Backoff {
            vigil: Some(vigil), ..
        } = &mut self.state
        {
            self.saw_others = true;
            let id = vigil.id;
            if vigil.handle_freed(node) {
                self.probe_node(id, node);
            }
            self.retry(now);
        }
    }

    /// Looks again at a node of which something is known to have changed: where several keys are locked,
    /// and one of them is gone.
    pub fn probe_again(&mut self, node: NodeId) {
        if let State::Backoff {
            vigil: Some(vigil), ..
        } = &mut self.state
            && self.config.quorum.all().contains(node)
            && vigil.handle_change(node)
        {
            let id = vigil.id;
            self.probe_node(id, node);
        }
    }

    /// Does what is due at `now`. Call it at [`poll_timeout`](Self::poll_timeout), or any time.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.expire(now);
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.state {
            State::Acquiring { round, budget, .. } => {
                let budget = *budget;
                if let Some(verdict) = round.give_up(now, budget.failure) {
                    self.conclude_acquire(now, budget, verdict);
                }
            }
            State::Fencing { round, budget, .. } => {
                let budget = *budget;
                let failure = if now >= round.valid_until() {
                    AcquireFailure::TooSlow
                } else {
                    AcquireFailure::NoQuorum
                };
                self.fail_attempt(now, budget, failure);
            }
            State::Backoff { .. } => self.retry(now),
            State::Held(_) => {
                self.start_extension(now, self.config.validity.ttl());
            }
            State::Releasing { round, .. } => {
                if let Some(verdict) = round.give_up() {
                    self.conclude_release(verdict);
                }
            }
            State::Idle | State::Closed => {}
        }
    }

    // Outputs.

    /// Returns the next request to send. The answer may change after any command or input.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next thing to tell the holder. The answer may change after any command or
    /// input.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next. The answer may
    /// change after any command or input; after `handle_timeout(t)` it is later than `t`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match &self.state {
            State::Idle | State::Closed => None,
            State::Acquiring { round, budget, .. } => {
                Some(round_deadline(round.valid_until(), *budget, self.attempts))
            }
            State::Fencing { round, budget, .. } => {
                Some(round_deadline(round.valid_until(), *budget, self.attempts))
            }
            State::Backoff {
                until,
                not_before,
                vigil,
                ..
            } => {
                let opens_at = vigil.as_ref().and_then(Vigil::opens_at);
                let opens_at = opens_at.map_or(*until, |at| at.max(*not_before));
                Some(opens_at.min(*until))
            }
            State::Releasing { until, .. } => Some(*until),
            State::Held(held) => Some(held.timeout()),
        }
    }

    // Getters.

    /// Returns the end of validity, if the lock is held at `now`.
    #[must_use]
    pub fn valid_until(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.state {
            State::Held(held) if now < held.valid_until => Some(held.valid_until),
            _ => None,
        }
    }

    /// Returns how the holder stands at `now`: held, held but failing to renew, or not held.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing {
        match &self.state {
            State::Held(held) if now < held.valid_until => {
                let valid_until = held.valid_until;
                if held.renewal_fails {
                    Standing::Uncertain { valid_until }
                } else {
                    Standing::Held { valid_until }
                }
            }
            _ => Standing::NotHeld,
        }
    }

    /// Returns the token under which the lock is held or was last tried.
    #[must_use]
    pub fn token(&self) -> Token {
        self.nonce.token(self.attempts)
    }

    /// Returns the longest ttl that was sent to a node so far. No key of this lease outlives the time at
    /// which its last request arrives by more than this.
    #[must_use]
    pub fn longest_ttl(&self) -> Ttl {
        self.longest_ttl
    }

    /// Returns how many attempts to acquire were started.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns whether another client was seen to have the lock, or to want it, before this lease
    /// acquired it.
    #[must_use]
    pub fn was_contended(&self) -> bool {
        self.attempts > 1 || self.saw_others
    }

    /// Returns whether the lease has ended: it will send nothing more and tell nothing more than
    /// what can be polled now.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    // Private.

    fn conclude_release(&mut self, verdict: ReleaseVerdict) {
        self.state = State::Closed;
        self.events.push_back(Event::Released(verdict));
    }

    fn send_release(&mut self, token: Token) -> RoundId {
        self.send(self.config.quorum.all(), Operation::Release { token })
    }

    fn send(&mut self, nodes: NodeSet, operation: Operation) -> RoundId {
        // Wraps only after four billion rounds of one lease; by then no old reply is under way.
        self.rounds = self.rounds.wrapping_add(1);
        let round = RoundId(self.rounds);
        self.transmits.push_back(Transmit {
            round,
            nodes,
            operation,
        });
        round
    }
}

#[cfg(test)]
mod tests;
