//! A client's end of its connection to one master: what is under way, and what is still owed.
//!
//! The rules are those of the lanes in `redlock-tokio`: a silent master is answered for, and a
//! connection that stays silent is given up. How long a release is owed is for the core to say.

use std::collections::HashMap;

use redlock_core::{
    Electorate, Operation, OwedRelease, Reply, RoundId, SetRequestState, Timestamp, Token, Ttl,
};

use crate::{
    clock::{MILLI, SECOND},
    master::Request,
    owner::MEMBERS,
};

/// After this long an answer is late, and the lease gets the reply "unknown".
pub(crate) const NODE_TIMEOUT: u64 = 50 * MILLI;

/// How long a connection may be silent beyond that before it is given up.
pub(crate) const SILENCE_LIMIT: u64 = SECOND;

/// How long after a failed delivery an owed release is tried again.
pub(crate) const RETRY_OWED_AFTER: u64 = 250 * MILLI;

pub(crate) struct Lane {
    /// Counts the connections: what belongs to an earlier one is a straggler.
    pub(crate) epoch: u32,
    pub(crate) connected: bool,
    /// Which process of the master this connection leads to.
    pub(crate) incarnation: u32,
    /// The server that the connection leads to: the master, unless an authority names another.
    pub(crate) server: usize,
    /// What is known of the master, and so what its votes are worth. It is the only node of it.
    pub(crate) electorate: Electorate,
    /// Until when this client reaches none of these members of the node's authority.
    pub(crate) members_cut_until: [u64; MEMBERS],
    pub(crate) flights: Vec<Flight>,
    sent: u64,
    pub(crate) owed: Vec<Owed>,
    /// A timer for the owed releases is armed.
    pub(crate) retrying: bool,
    /// The requests to set a key, by the token in it.
    set_requests: HashMap<Token, SetRequestState>,
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
    /// The lease got the reply "unknown".
    pub(crate) late: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// A lease waits for the answer.
    Round(RoundId),
    /// A release that was owed.
    Owed(OwedRelease),
    /// A mutant sent it, and no lease waits for the answer.
    Nothing,
}

/// A release that is owed, and what it was.
#[derive(Clone, Copy)]
pub(crate) struct Owed {
    pub(crate) request: Request,
    pub(crate) release: OwedRelease,
}

impl Lane {
    pub(crate) fn new(server: usize, electorate: Electorate) -> Self {
        Self {
            epoch: 0,
            connected: true,
            incarnation: 0,
            server,
            electorate,
            members_cut_until: [0; MEMBERS],
            flights: Vec::new(),
            sent: 0,
            owed: Vec::new(),
            retrying: false,
            set_requests: HashMap::new(),
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
        if let Operation::Acquire { token, .. } = request.operation {
            let state = self.set_requests.entry(token);
            state.or_insert(SetRequestState::Sent);
        }
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
                self.set_requests.insert(token, SetRequestState::Unanswered);
            }
        }
        flights
    }

    /// Forgets everything: the client's process is gone.
    pub(crate) fn crash(&mut self, electorate: Electorate) {
        self.electorate = electorate;
        let _ = self.give_up();
        self.owed.clear();
        self.retrying = false;
        self.set_requests.clear();
    }

    /// Remembers a release if it must be sent again after this reply.
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        ttl: Ttl,
        request: Request,
        purpose: Purpose,
        reply: Reply,
    ) {
        let Operation::Release { token } = request.operation else {
            return;
        };
        let sent = self.set_requests.get(&token).copied();
        let requests = sent.unwrap_or(SetRequestState::NeverSent);
        let release = match purpose {
            Purpose::Owed(release) => release.after_next(requests, reply),
            Purpose::Round(_) | Purpose::Nothing => {
                OwedRelease::after_first(now, ttl, requests, reply)
            }
        };
        let owed = release.map(|release| Owed { request, release });
        self.owed.extend(owed);
    }

    /// Takes the releases that are still worth delivering.
    pub(crate) fn take_owed(&mut self, now: Timestamp) -> Vec<Owed> {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|it| !it.release.has_expired(now));
        owed
    }
}
