//! The whole life of a lock, from the first attempt to its release or loss.

mod config;
mod event;
mod transmit;

use alloc::collections::VecDeque;

pub use config::LeaseConfig;
pub use event::{Event, LossReason};
pub use transmit::{Operation, RoundId, Transmit};

use crate::{
    Acquire, AcquireFailure, AcquireVerdict, Extend, ExtendVerdict, NodeId, NodeSet, Nonce,
    Release, ReleaseVerdict, Reply, Timestamp, Token,
};

/// One client's attempt to hold one lock: acquiring, retrying, renewing, releasing.
///
/// ```text
///            acquire            quorum in time              release
///    Idle ----------> Acquiring ---------------> Held ---------------> Releasing
///                      |    ^                    |  |                      |
///               failed |    | delay over         |  | validity over,       | quorum, or
///                      v    |                    |  | keys lost            | nobody left
///                     Backoff                    |  v                      v
///                      |                         | Closed (Lost)     Closed (Released)
///                      | budget spent            |
///                      v                         +-- extension due: Extend round, still Held
///                    Closed (Exhausted)
/// ```
///
/// A lease does no I/O and reads no clock. Its driver calls commands ([`acquire`](Self::acquire),
/// [`extend`](Self::extend), [`release`](Self::release)) and inputs
/// ([`handle_reply`](Self::handle_reply), [`handle_timeout`](Self::handle_timeout)), and after
/// each of them drains [`poll_transmit`](Self::poll_transmit) and
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
    Backoff {
        until: Timestamp,
        budget: Budget,
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

/// What all attempts have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    /// When their time is over.
    deadline: Timestamp,
    /// How the last of them failed.
    failure: Option<AcquireFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    token: Token,
    /// The start of the attempt that won.
    acquired_at: Timestamp,
    valid_until: Timestamp,
    extension: Extension,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Extension {
    /// Nothing is under way; renewal is due then, if at all. The last round is kept for nodes
    /// that report late that they lost our key.
    Idle {
        due: Option<Timestamp>,
        last: Option<(RoundId, Extend)>,
    },
    Running {
        id: RoundId,
        round: Extend,
    },
}

impl Lease {
    /// Creates a lease that holds nothing yet. The `nonce` must be fresh and random.
    #[must_use]
    pub fn new(config: LeaseConfig, nonce: Nonce) -> Self {
        Self {
            config,
            nonce,
            attempts: 0,
            rounds: 0,
            state: State::Idle,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // Commands.

    /// Starts to acquire the lock. Changes nothing unless the lease is new.
    pub fn acquire(&mut self, now: Timestamp) {
        if matches!(self.state, State::Idle) {
            let deadline = self.config.retry.deadline(now);
            self.attempt(
                now,
                Budget {
                    deadline,
                    failure: None,
                },
            );
        }
    }

    /// Extends a held lock now instead of when renewal is due. Joins an extension that is under
    /// way. The answer is the next [`Event::Extended`], [`Event::ExtendFailed`] or
    /// [`Event::Lost`].
    ///
    /// Returns whether an extension is under way now; there is none if the lock is not held, or
    /// if it was held for the longest time that renewal is allowed to last.
    pub fn extend(&mut self, now: Timestamp) -> bool {
        self.expire(now);
        self.start_extension(now);
        matches!(
            &self.state,
            State::Held(Held {
                extension: Extension::Running { .. },
                ..
            })
        )
    }

    /// Ends the lease: releases a held lock, gives up an attempt that is under way. The answer is
    /// [`Event::Released`] if the lock was held; an attempt ends without an event.
    pub fn release(&mut self, now: Timestamp) {
        self.expire(now);
        match &self.state {
            State::Idle | State::Backoff { .. } => self.state = State::Closed,
            State::Acquiring { round, .. } => {
                let token = round.token();
                self.state = State::Closed;
                self.send_release(token);
            }
            State::Held(held) => {
                let token = held.token;
                // What was sent last may still lengthen a key's life to this.
                let until = now.saturating_add(self.config.validity.ttl().as_duration());
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
            State::Acquiring { round, .. } => {
                let token = round.token();
                self.send_release(token);
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

    /// Takes a node's reply to the transmission with this id.
    pub fn handle_reply(&mut self, now: Timestamp, id: RoundId, node: NodeId, reply: Reply) {
        self.expire(now);
        match &mut self.state {
            State::Acquiring {
                id: current,
                round,
                budget,
            } if *current == id => {
                let budget = *budget;
                if let Some(verdict) = round.handle_reply(now, node, reply) {
                    self.conclude_acquire(now, budget, verdict);
                }
            }
            State::Held(held) => match &mut held.extension {
                Extension::Running { id: current, round } if *current == id => {
                    if let Some(verdict) = round.handle_reply(now, node, reply) {
                        self.conclude_extend(now, verdict);
                    }
                }
                Extension::Idle {
                    last: Some((last, round)),
                    ..
                } if *last == id => {
                    let known = round.lost_on();
                    round.handle_reply(now, node, reply);
                    let lost_on = round.lost_on().difference(known);
                    self.repair(lost_on);
                }
                Extension::Running { .. } | Extension::Idle { .. } => {}
            },
            State::Releasing {
                id: current, round, ..
            } if *current == id => {
                if let Some(verdict) = round.handle_reply(node, reply) {
                    self.conclude_release(verdict);
                }
            }
            State::Idle
            | State::Acquiring { .. }
            | State::Backoff { .. }
            | State::Releasing { .. }
            | State::Closed => {}
        }
    }

    /// Does what is due at `now`. Call it at [`poll_timeout`](Self::poll_timeout), or any time.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.expire(now);
        match &mut self.state {
            State::Acquiring { round, budget, .. }
                if now >= round_deadline(round, *budget, self.attempts) =>
            {
                let budget = *budget;
                if let Some(verdict) = round.give_up(now, budget.failure) {
                    self.conclude_acquire(now, budget, verdict);
                }
            }
            State::Backoff { until, budget } if now >= *until => {
                let budget = *budget;
                match budget.failure {
                    // The timer came too late for another attempt.
                    Some(failure) if now >= budget.deadline => self.exhaust(failure),
                    _ => self.attempt(now, budget),
                }
            }
            State::Held(Held {
                extension: Extension::Idle { due: Some(due), .. },
                ..
            }) if now >= *due => self.start_extension(now),
            State::Releasing { round, until, .. } if now >= *until => {
                if let Some(verdict) = round.give_up() {
                    self.conclude_release(verdict);
                }
            }
            _ => {}
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
                Some(round_deadline(round, *budget, self.attempts))
            }
            State::Backoff { until, .. } | State::Releasing { until, .. } => Some(*until),
            State::Held(held) => Some(match &held.extension {
                Extension::Idle { due: Some(due), .. } => held.valid_until.min(*due),
                Extension::Idle { due: None, .. } | Extension::Running { .. } => held.valid_until,
            }),
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

    /// Returns the token under which the lock is held or was last tried.
    #[must_use]
    pub fn token(&self) -> Token {
        self.nonce.token(self.attempts)
    }

    /// Returns how many attempts to acquire were started.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns whether the lease has ended: it will send nothing more and tell nothing more than
    /// what can be polled now.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    // Private.

    /// Declares a held lock lost when its validity is over. Every input starts with this, so that
    /// nothing can be decided on a validity that has ended.
    fn expire(&mut self, now: Timestamp) {
        if let State::Held(held) = &self.state
            && now >= held.valid_until
        {
            self.lose(if self.config.keep_alive.allows(held.acquired_at, now) {
                LossReason::Expired
            } else {
                LossReason::MaxHold
            });
        }
    }

    /// Redlock step 1: the time is read before the first request leaves. Each attempt has a token
    /// of its own.
    fn attempt(&mut self, now: Timestamp, budget: Budget) {
        self.attempts += 1;
        let LeaseConfig {
            quorum, validity, ..
        } = self.config;
        let round = Acquire::new(quorum, validity, self.token(), now);
        let id = self.send(
            quorum.all(),
            Operation::Acquire {
                token: round.token(),
                ttl: validity.ttl(),
            },
        );
        self.state = State::Acquiring { id, round, budget };
    }

    fn conclude_acquire(&mut self, now: Timestamp, budget: Budget, verdict: AcquireVerdict) {
        let State::Acquiring { round, .. } = &self.state else {
            return;
        };
        match verdict {
            AcquireVerdict::Acquired { valid_until } => {
                let (token, acquired_at) = (round.token(), round.start());
                self.state = State::Held(Held {
                    token,
                    acquired_at,
                    valid_until,
                    extension: Extension::Idle {
                        due: self
                            .config
                            .keep_alive
                            .next_extension(acquired_at, acquired_at),
                        last: None,
                    },
                });
                self.events.push_back(Event::Acquired { valid_until });
            }
            AcquireVerdict::Failed(failure) => {
                // Redlock step 5: on every node, the silent ones included.
                let token = round.token();
                self.send_release(token);
                self.back_off(now, budget.deadline, failure);
            }
        }
    }

    fn back_off(&mut self, now: Timestamp, deadline: Timestamp, failure: AcquireFailure) {
        let random = self.nonce.jitter(self.attempts);
        let next = self
            .config
            .retry
            .next_attempt(deadline, self.attempts, now, random)
            // No token is used twice, not even after four billion attempts.
            .filter(|_| self.attempts < u32::MAX);
        match next {
            Some(until) => {
                let budget = Budget {
                    deadline,
                    failure: Some(failure),
                };
                self.state = State::Backoff { until, budget };
            }
            None => self.exhaust(failure),
        }
    }

    fn exhaust(&mut self, failure: AcquireFailure) {
        self.state = State::Closed;
        self.events.push_back(Event::Exhausted {
            failure,
            attempts: self.attempts,
        });
    }

    fn start_extension(&mut self, now: Timestamp) {
        let LeaseConfig {
            quorum,
            validity,
            keep_alive,
            ..
        } = self.config;
        let State::Held(held) = &self.state else {
            return;
        };
        if matches!(held.extension, Extension::Running { .. }) {
            return;
        }
        let (token, valid_until) = (held.token, held.valid_until);
        if !keep_alive.allows(held.acquired_at, now) {
            if let State::Held(held) = &mut self.state {
                held.extension = Extension::Idle {
                    due: None,
                    last: None,
                };
            }
            return;
        }
        let id = self.send(
            quorum.all(),
            Operation::Extend {
                token,
                ttl: validity.ttl(),
            },
        );
        if let State::Held(held) = &mut self.state {
            let round = Extend::new(quorum, validity, token, valid_until, now);
            held.extension = Extension::Running { id, round };
        }
    }

    fn conclude_extend(&mut self, now: Timestamp, verdict: ExtendVerdict) {
        let keep_alive = self.config.keep_alive;
        let State::Held(held) = &mut self.state else {
            return;
        };
        let idle = Extension::Idle {
            due: None,
            last: None,
        };
        let Extension::Running { id, round } = core::mem::replace(&mut held.extension, idle) else {
            return;
        };
        let acquired_at = held.acquired_at;
        let (due, event) = match verdict {
            ExtendVerdict::KeysLost => return self.lose(LossReason::KeysLost),
            ExtendVerdict::Extended { valid_until } => {
                held.valid_until = valid_until;
                let due = keep_alive.next_extension(acquired_at, round.start());
                self.repair(round.lost_on());
                (due, Event::Extended { valid_until })
            }
            ExtendVerdict::Failed => {
                let valid_until = held.valid_until;
                let due = keep_alive.next_try(acquired_at, now);
                (due, Event::ExtendFailed { valid_until })
            }
        };
        let last = matches!(verdict, ExtendVerdict::Extended { .. }).then_some((id, round));
        if let State::Held(held) = &mut self.state {
            held.extension = Extension::Idle { due, last };
        }
        self.events.push_back(event);
    }

    /// Puts our key back on nodes that lost it, after a majority has confirmed the lock without
    /// them. It wins nothing by itself (the reply is not counted), but keeps the lock alive when
    /// nodes restart one after the other.
    fn repair(&mut self, nodes: NodeSet) {
        if let State::Held(held) = &self.state
            && !nodes.is_empty()
        {
            let (token, ttl) = (held.token, self.config.validity.ttl());
            self.send(nodes, Operation::Acquire { token, ttl });
        }
    }

    fn conclude_release(&mut self, verdict: ReleaseVerdict) {
        self.state = State::Closed;
        self.events.push_back(Event::Released(verdict));
    }

    fn lose(&mut self, reason: LossReason) {
        if let State::Held(held) = &self.state {
            let token = held.token;
            self.state = State::Closed;
            // The lock is over for us; what is left of its keys only keeps the others waiting.
            self.send_release(token);
            self.events.push_back(Event::Lost(reason));
        }
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

/// When an attempt is given up: when nothing can be won any more, or when the time budget is
/// spent. The first attempt is exempt from the budget, so that even a budget shorter than a round
/// trip has its one chance; the driver answers for silent nodes in time.
fn round_deadline(round: &Acquire, budget: Budget, attempts: u32) -> Timestamp {
    if attempts == 1 {
        round.valid_until()
    } else {
        round.valid_until().min(budget.deadline)
    }
}

#[cfg(test)]
mod tests;
