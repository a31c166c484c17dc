//! Between clients and masters: delay, loss, repetition, overtaking, broken connections.

mod connecting;

use std::time::Duration;

use redlock_core::{Eligibility, NodeId, Operation, Reply, RoundId};

use crate::{
    client::Said,
    clock::{MILLI, SECOND},
    configuration::Mutant,
    events::{Answer, Arrival, ClientEvent, Event},
    history::MAX_LATE,
    lane::{Flight, NODE_TIMEOUT, Purpose, RETRY_OWED_AFTER, SILENCE_LIMIT},
    master::{Request, Vote},
    owner::NODE,
    seen::Seen,
    world::World,
};

// How often, of a million messages, at severity 1.
const LOSS: u32 = 400;
const BREAK: u32 = 200;
const REPEAT: u32 = 1_000;
const SLOW: u32 = 2_000;

impl World {
    /// Sends a request, or turns it away at once if the master is out of reach.
    pub(crate) fn send(
        &mut self,
        client: usize,
        master: usize,
        request: Request,
        purpose: Purpose,
    ) {
        if !self.lane(client, master).is_open() {
            self.settle_release(client, master, request, purpose, Reply::Refused);
            if let Purpose::Round(round) = purpose {
                let refused = worthless(Reply::Refused);
                self.hand_over(client, master, request.lease, round, refused);
            }
            self.retry_owed(client, master);
            return;
        }
        let sent = self.at;
        let delay = self.delay();
        let (at, fifo) = (self.at, self.configuration.fifo);
        let lane = self.lane(client, master);
        let flight = lane.launch(sent, request, purpose);
        let mut arrives = at + delay;
        let mute_until = lane.mute_until;
        if fifo {
            arrives = arrives.max(lane.last_arrival + 1);
            lane.last_arrival = arrives;
        }
        let arrival = Arrival {
            client,
            master,
            server: lane.server,
            epoch: lane.epoch,
            flight,
            sent,
            request,
            purpose,
        };
        if mute_until > at {
            // Some of what is held up is sent again by the kernel once the way is free.
            if self.rng.chance(300_000) {
                let arrives = (mute_until + delay).min(sent + MAX_LATE);
                self.hold_back(client, master, arrives);
                self.schedule(arrives, Event::Arrive(arrival));
            }
            self.expect_late(client, master, sent);
        } else if self.strikes(LOSS) {
            self.note(Seen::Loss);
            self.expect_late(client, master, sent);
        } else if self.strikes(BREAK) {
            self.note(Seen::Break);
            let epoch = arrival.epoch;
            self.schedule_client(arrives, client, ClientEvent::Broken { master, epoch });
            // It may be carried out now, much later, or never.
            if self.rng.chance(500_000) {
                let late = self.rng.around(MAX_LATE / 8);
                let late = (arrives + late).min(sent + MAX_LATE).max(arrives);
                self.schedule(late, Event::Arrive(arrival));
            }
        } else {
            self.schedule(arrives, Event::Arrive(arrival));
            if self.strikes(REPEAT) {
                self.note(Seen::Repeat);
                let later = self.rng.pick(&[5 * MILLI, SECOND, MAX_LATE / 4]);
                let later = self.rng.around(later);
                let later = (arrives + later).min(sent + MAX_LATE).max(arrives);
                self.schedule(later, Event::Arrive(arrival));
            }
        }
    }

    /// Lets a master carry out what has arrived, and answer.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        let Arrival {
            client,
            master,
            server,
            epoch,
            sent,
            request,
            ..
        } = arrival;
        let at = self.at;
        let (up, incarnation) = (self.masters[server].up, self.masters[server].incarnation);
        let lane = self.lane(client, master);
        let same_connection = lane.epoch == epoch;
        let current = same_connection && lane.incarnation == incarnation;
        if !up {
            self.trace.event([at, 1, client as u64, master as u64]);
            if same_connection {
                self.expect_late(client, master, sent);
            }
            return;
        }
        if same_connection && !current {
            // The process that accepted the connection is gone, and its successor says so.
            let delay = self.delay();
            self.schedule_client(at + delay, client, ClientEvent::Broken { master, epoch });
        }
        // What belongs to a connection that is gone may have been held by a proxy.
        if !current && self.rng.chance(500_000) {
            self.trace.event([at, 2, client as u64, master as u64]);
            return;
        }
        let vote = self.masters[server].execute(at, &request);
        let word = match vote {
            Vote::Granted => 0,
            Vote::Denied => 1,
            Vote::Outbid(counter) => counter.get(),
            Vote::Free => 2,
            Vote::Taken(left) => 3 + left,
        };
        let place = (client as u64) << 32 | master as u64;
        self.trace.event([at, 3, place, word]);
        if vote == Vote::Granted && self.history.has_ended(request.lease) {
            match request.operation {
                Operation::Acquire { .. } => self.note(Seen::LateSet),
                Operation::Extend { .. } => self.note(Seen::LateExtend),
                _ => {}
            }
        }
        if current {
            self.answer(arrival, vote);
        }
    }

    fn answer(&mut self, arrival: Arrival, vote: Vote) {
        let Arrival {
            client,
            master,
            sent,
            ..
        } = arrival;
        let at = self.at;
        let lost = self.strikes(LOSS);
        if lost || self.lane(client, master).deaf_until > at {
            if lost {
                self.note(Seen::Loss);
            }
            return self.expect_late(client, master, sent);
        }
        let mut lands = at + self.delay();
        if self.configuration.fifo {
            let lane = self.lane(client, master);
            lands = lands.max(lane.last_answer + 1);
            lane.last_answer = lands;
        }
        if lands > sent + NODE_TIMEOUT {
            self.expect_late(client, master, sent);
        }
        let answer = ClientEvent::Answer(Answer { arrival, vote });
        self.schedule_client(lands, client, answer);
        if self.strikes(REPEAT) {
            self.note(Seen::Repeat);
            let again = lands + self.rng.around(SECOND);
            self.schedule_client(again, client, answer);
        }
    }

    /// Takes an answer from the connection it belongs to.
    pub(crate) fn land(&mut self, client: usize, Answer { arrival, vote }: Answer) {
        let Arrival {
            master,
            epoch,
            flight,
            request,
            purpose,
            ..
        } = arrival;
        let lane = self.lane(client, master);
        if lane.epoch != epoch {
            return;
        }
        let flight = lane.land(flight);
        let reply = self.reply(client, vote);
        if let Some(flight) = flight {
            self.settle_release(client, master, request, purpose, reply);
            if flight.late {
                // The master is back: it gets the releases it missed.
                self.deliver_owed(client, master);
            }
            if let (Purpose::Owed(_), Vote::Granted) = (purpose, vote) {
                self.note(Seen::OwedRelease);
            }
            self.retry_owed(client, master);
        }
        let Purpose::Round(round) = purpose else {
            return;
        };
        if matches!(reply, Reply::Taken { .. }) {
            self.note(Seen::ProbedTaken);
        }
        let eligibility = self.worth(client, master);
        let now = self.clients[client].now(self.at);
        if reply == Reply::Granted && self.configuration.authorities {
            self.note_owner_rule(client, master);
        }
        if reply == Reply::Granted && !eligibility.remaining(now).is_zero() {
            self.note(Seen::QuarantinedVote);
        }
        let said = Said { reply, eligibility };
        self.hand_over(client, master, request.lease, round, said);
    }

    /// Returns what the driver says that a master's votes are worth.
    fn worth(&mut self, client: usize, master: usize) -> Eligibility {
        let mutant = self.configuration.mutant;
        let eligibility = self.lane(client, master).electorate.eligibility(NODE());
        match mutant {
            _ if eligibility == Eligibility::NEVER => eligibility,
            Some(Mutant::IgnoresWindow) => Eligibility::since(eligibility.starts_at()),
            Some(Mutant::IgnoresSettling) => Eligibility::ALWAYS.until(eligibility.ends_at()),
            _ => eligibility,
        }
    }

    /// Returns what a vote that arrives now is to the algorithm.
    fn reply(&self, client: usize, vote: Vote) -> Reply {
        match vote {
            Vote::Granted => Reply::Granted,
            Vote::Denied => Reply::Denied,
            Vote::Outbid(counter) => Reply::Outbid { counter },
            Vote::Free => Reply::Free,
            Vote::Taken(left) => {
                let now = self.clients[client].now(self.at);
                Reply::taken_for(now, Duration::from_millis(left))
            }
        }
    }

    /// Answers for what has been under way for too long.
    pub(crate) fn time_out(&mut self, client: usize, master: usize, epoch: u32) {
        let at = self.at;
        let lane = self.lane(client, master);
        if lane.epoch != epoch {
            return;
        }
        let mut late = Vec::new();
        for flight in &mut lane.flights {
            if !flight.late && flight.sent + NODE_TIMEOUT <= at {
                flight.late = true;
                late.push(*flight);
            }
        }
        if lane.is_hopeless(at) {
            self.break_up(client, master, epoch);
        } else if let Some(first) = late.first() {
            let end = first.sent + NODE_TIMEOUT + SILENCE_LIMIT;
            self.schedule_client(end, client, ClientEvent::Late { master, epoch });
        }
        for flight in late {
            self.tell_unknown(client, master, &flight);
        }
    }

    /// Gives a connection up, and opens another.
    pub(crate) fn break_up(&mut self, client: usize, master: usize, epoch: u32) {
        let lane = self.lane(client, master);
        if lane.epoch != epoch || !lane.connected {
            return;
        }
        let flights = lane.give_up();
        for flight in &flights {
            self.settle_release(
                client,
                master,
                flight.request,
                flight.purpose,
                Reply::Unknown,
            );
        }
        for flight in flights.iter().filter(|flight| !flight.late) {
            self.tell_unknown(client, master, flight);
        }
        self.reconnect(client, master);
    }

    fn tell_unknown(&mut self, client: usize, master: usize, flight: &Flight) {
        if let Purpose::Round(round) = flight.purpose {
            let unknown = worthless(Reply::Unknown);
            self.hand_over(client, master, flight.request.lease, round, unknown);
        }
    }

    /// Sends the releases that are owed.
    pub(crate) fn deliver_owed(&mut self, client: usize, master: usize) {
        let now = self.clients[client].now(self.at);
        let lane = self.lane(client, master);
        lane.retrying = false;
        if !lane.is_open() {
            return;
        }
        for owed in lane.take_owed(now) {
            self.send(client, master, owed.request, Purpose::Owed(owed.release));
        }
    }

    /// Sees to it that what is owed is tried again.
    fn retry_owed(&mut self, client: usize, master: usize) {
        let lane = self.lane(client, master);
        // A lane that is not open tries as soon as it is.
        if lane.is_open() && !lane.owed.is_empty() && !lane.retrying {
            lane.retrying = true;
            let event = ClientEvent::DeliverOwed { master };
            self.schedule_client(self.at + RETRY_OWED_AFTER, client, event);
        }
    }

    fn hand_over(
        &mut self,
        client: usize,
        master: usize,
        lease: usize,
        round: RoundId,
        said: Said,
    ) {
        // Fewer than ten masters, so each has an id.
        let node = NodeId::new(master).expect("fewer than 64 masters");
        self.clients[client].hand_over(lease, round, node, said);
    }

    /// Checks later whether a request that is under way was answered in time.
    fn expect_late(&mut self, client: usize, master: usize, sent: u64) {
        let epoch = self.lane(client, master).epoch;
        let at = self.at.max(sent + NODE_TIMEOUT);
        self.schedule_client(at, client, ClientEvent::Late { master, epoch });
    }

    fn hold_back(&mut self, client: usize, master: usize, until: u64) {
        if self.configuration.fifo {
            let lane = self.lane(client, master);
            lane.last_arrival = lane.last_arrival.max(until);
        }
    }

    pub(crate) fn delay(&mut self) -> u64 {
        let usual = self.scale.latency + self.rng.below(self.scale.latency);
        if self.strikes(SLOW) {
            self.note(Seen::Slow);
            usual + self.rng.around(100 * MILLI)
        } else {
            usual
        }
    }

    /// Returns whether a fault of this frequency happens now.
    fn strikes(&mut self, per_million: u32) -> bool {
        !self.calm && self.rng.chance(per_million * self.configuration.severity)
    }

    /// Remembers a release if it must be sent again after this reply. Other requests are not owed.
    fn settle_release(
        &mut self,
        client: usize,
        master: usize,
        request: Request,
        purpose: Purpose,
        reply: Reply,
    ) {
        let now = self.clients[client].now(self.at);
        let ttl = self.scale.max_ttl;
        let lane = self.lane(client, master);
        lane.settle(now, ttl, request, purpose, reply);
    }
}

/// A reply that is no vote, of whomever.
fn worthless(reply: Reply) -> Said {
    Said {
        reply,
        eligibility: Eligibility::ALWAYS,
    }
}
