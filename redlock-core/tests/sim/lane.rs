//! A client's end of its connection to one master: what is under way, and what is still owed.
//!
//! The rules are those of the lanes in `redlock-tokio`: a silent master is answered for, a
//! connection that stays silent is given up, and releases are owed until they are delivered or the
//! key must have expired.

use std::collections::VecDeque;

use redlock_core::{Operation, RoundId, Timestamp, Token, Voter};

use crate::{
    clock::{MILLI, SECOND},
    master::{Request, Vote},
};

/// After this long an answer is late, and the lease is told that nobody knows.
pub(crate) const NODE_TIMEOUT: u64 = 50 * MILLI;

/// How long a connection may be silent beyond that before it is given up.
pub(crate) const SILENCE_LIMIT: u64 = SECOND;

/// How long after a failed delivery an owed release is tried again.
pub(crate) const RETRY_DEBTS_AFTER: u64 = 250 * MILLI;

pub(crate) struct Lane {
    /// Counts the connections: what belongs to an earlier one is a straggler.
    pub(crate) epoch: u32,
    pub(crate) connected: bool,
    /// Which process of the master this connection leads to.
    pub(crate) incarnation: u32,
    /// What is known of the master, and so what its votes are worth.
    pub(crate) voter: Voter,
    pub(crate) flights: Vec<Flight>,
    sent: u64,
    pub(crate) debts: Vec<Debt>,
    /// A timer for the debts is armed.
    pub(crate) retrying: bool,
    /// Tokens that may be set after a release found nothing, the latest few.
    unanswered: VecDeque<Token>,
    /// When the latest request arrives, and its answer: connections in order go on from there.
    pub(crate) last_arrival: u64,
    pub(crate) last_answer: u64,
    /// Requests, answers are cut off until then.
    pub(crate) mute_until: u64,
    pub(crate) deaf_until: u64,
}

/// A request that was sent and not answered.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) id: u64,
    pub(crate) sent: u64,
    pub(crate) request: Request,
    pub(crate) purpose: Purpose,
    /// The lease was told that nobody knows.
    pub(crate) late: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// A lease waits for the answer.
    Round(RoundId),
    /// A release that was owed.
    Owed(Terms),
    /// Nobody waits: a mutant's doing.
    Nothing,
}

/// Until when, and how firmly, a release is owed.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// When the key has expired by itself, on the client's clock.
    expires_at: Timestamp,
    /// The key may appear after a release that found nothing.
    may_appear: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Debt {
    pub(crate) request: Request,
    pub(crate) terms: Terms,
}

impl Lane {
    pub(crate) fn new(voter: Voter) -> Self {
        Self {
            epoch: 0,
            connected: true,
            incarnation: 0,
            voter,
            flights: Vec::new(),
            sent: 0,
            debts: Vec::new(),
            retrying: false,
            unanswered: VecDeque::new(),
            last_arrival: 0,
            last_answer: 0,
            mute_until: 0,
            deaf_until: 0,
        }
    }

    /// Returns whether requests can be sent, rather than turned away at once.
    pub(crate) fn is_open(&self) -> bool {
        self.connected && !self.flights.iter().any(|flight| flight.late)
    }

    /// Returns whether the connection has been silent for so long that it is given up.
    pub(crate) fn is_hopeless(&self, at: u64) -> bool {
        let limit = NODE_TIMEOUT + SILENCE_LIMIT;
        self.flights
            .iter()
            .any(|it| it.late && it.sent + limit <= at)
    }

    /// Notes that a request is under way, and returns its id.
    pub(crate) fn launch(&mut self, at: u64, request: Request, purpose: Purpose) -> u64 {
        self.sent += 1;
        self.flights.push(Flight {
            id: self.sent,
            sent: at,
            request,
            purpose,
            late: false,
        });
        self.sent
    }

    /// Takes the flight that was answered, unless it was answered before.
    pub(crate) fn land(&mut self, id: u64) -> Option<Flight> {
        let position = self.flights.iter().position(|flight| flight.id == id)?;
        Some(self.flights.remove(position))
    }

    /// Gives the connection up. What was under way is returned; it may still be carried out.
    pub(crate) fn give_up(&mut self) -> Vec<Flight> {
        self.epoch += 1;
        self.connected = false;
        let flights = std::mem::take(&mut self.flights);
        for flight in &flights {
            if let Operation::Acquire { token, .. } = flight.request.operation {
                self.note_unanswered(token);
            }
        }
        flights
    }

    /// Forgets everything: the client's process is gone.
    pub(crate) fn crash(&mut self, voter: Voter) {
        self.voter = voter;
        let _ = self.give_up();
        self.debts.clear();
        self.retrying = false;
        self.unanswered.clear();
    }

    /// Remembers a release if it must be sent again after this answer, or after none.
    pub(crate) fn settle(
        &mut self,
        release: Request,
        purpose: Purpose,
        vote: Option<Vote>,
        expires_at: Timestamp,
    ) {
        let Operation::Release { token } = release.operation else {
            return;
        };
        let terms = match purpose {
            Purpose::Owed(terms) => terms,
            Purpose::Round(_) | Purpose::Nothing => Terms {
                expires_at,
                may_appear: self.unanswered.contains(&token),
            },
        };
        match vote {
            Some(Vote::Granted) => {}
            Some(_) if !terms.may_appear => {}
            _ => self.debts.push(Debt {
                request: release,
                terms,
            }),
        }
    }

    /// Takes the releases that are still worth delivering.
    pub(crate) fn take_debts(&mut self, now: Timestamp) -> Vec<Debt> {
        let mut debts = std::mem::take(&mut self.debts);
        debts.retain(|debt| debt.terms.expires_at > now);
        debts
    }

    fn note_unanswered(&mut self, token: Token) {
        for debt in &mut self.debts {
            if debt.request.operation == (Operation::Release { token }) {
                debt.terms.may_appear = true;
            }
        }
        // More than can be under way for the one lease that a client has at a time.
        const MOST: usize = 16;
        if self.unanswered.len() == MOST {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(token);
    }
}
