//! What happens to requests at their server, and to answers on their way back.

use redlock_tokio::node::{Access, LineRequest, Operation, Vote};

use super::{
    Arrival, ConnectionId, Loses, Network, Reply, Request, Response, disconnected, unreachable,
};
use crate::{
    clock::{MILLI, SECOND},
    message::Word,
    seen::Seen,
    server::{Outage, Refusal, Sender},
};

/// From when on an answer is late, by the default of `node_timeout`.
pub(super) const LATE: u64 = 50 * MILLI;

/// Until when an answer is in time by every clock.
pub(super) const IN_TIME: u64 = 48 * MILLI;

/// From when on a connection without an answer is given up.
const TOO_LATE: u64 = LATE + SECOND;

impl Network {
    /// A request reaches its server.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        let at = self.at();
        let (id, server) = (arrival.connection, arrival.server);
        match self.servers[server].outage {
            Some(Outage::Silent) => return,
            Some(Outage::Refuses) => return self.reset(id),
            None => {}
        }
        let until = self.servers[server].stands_still_until;
        if until > at {
            let arrive = |network: &mut Self| network.arrive(arrival);
            return self.queue.push_to_network(until, arrive);
        }
        let generation = self.servers[server].generation;
        // A connection that the process has closed may have been that of a proxy, which passes on what it has.
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_half_open {
                return;
            }
            if connection.loses == Some(Loses::Requests) {
                self.is_lost(id, Loses::Requests);
                return self.expect_end(id, arrival.number, &arrival.request);
            }
            if *connection.generation.get_or_insert(generation) != generation {
                return self.reset(id);
            }
        }
        if self.befalls(Seen::ResetBefore) {
            return self.reset(id);
        }
        let reply = self.carry_out(at, &arrival);
        if self.befalls(Seen::ResetAfter) {
            return self.reset(id);
        }
        let reply = reply.map(|it| self.spoil(&arrival.request, it));
        self.answer(at, &arrival, reply);
    }

    fn carry_out(&mut self, at: u64, arrival: &Arrival) -> Reply {
        let Arrival {
            server,
            ref request,
            ..
        } = *arrival;
        let is_first = matches!(request, Request::Describe) && arrival.number == 1;
        let refusal = self.servers[server].refusal;
        if let Some(error) = refusal
            .and_then(Refusal::of_connection)
            .filter(|_| is_first)
        {
            self.seen.note(Seen::ConnectionRefusedNoAuth);
            return Err(error);
        }
        if let Some(reply) = self.refuse_as_named(at, server, request) {
            return reply;
        }
        Ok(match request {
            Request::Describe => {
                let described = self.servers[server].describe(at);
                let text = || format!("server {server} is {described:?}");
                self.trace.note(at, (server, "describe"), text);
                Response::Described(described)
            }
            Request::HistoryAge | Request::TenureAge { .. } => {
                let it = &mut self.servers[server];
                if let Some(error) = it.refuse_marker() {
                    self.seen.note(Seen::MarkerRefused);
                    return Err(error);
                }
                let (age, seen) = match request {
                    Request::TenureAge { epoch } => {
                        (it.tenure_age(at, *epoch), Seen::MarkerOfTenure)
                    }
                    _ => (it.history_age(at), Seen::MarkerFound),
                };
                if age.as_secs() > 0 {
                    self.seen.note(seen);
                }
                let text = || format!("server {server}: {request:?} is {age:?}");
                self.trace.note(at, (server, age), text);
                Response::Age(age)
            }
            Request::LookUp(key) => match refusal.and_then(Refusal::of_look_up) {
                Some(error) => return Err(error),
                None => Response::Found(self.servers[server].look_up(at, key)),
            },
            Request::Line(requests) => {
                let from = arrival.connection;
                let connection = self.connections.get(&from);
                let is_called = connection.is_some_and(|it| it.invalidations.is_some());
                let it = &mut self.servers[server];
                let is_open = |id| self.connections.contains_key(&id);
                let (answers, called) = it.execute_in_line(at, from, is_called, is_open, requests);
                for (connection, key, is_taken) in called {
                    self.seen.note(Seen::CalledInLine);
                    self.invalidate(at, connection, &Word::Called(key, is_taken));
                }
                let key = |it: &LineRequest| it.key.as_bytes().escape_ascii().to_string();
                let keys = || requests.iter().map(key).collect::<Vec<_>>();
                let text = || format!("server {server} {:?} {requests:?} -> {answers:?}", keys());
                self.trace.note(at, (server, requests.len()), text);
                Response::InLine(answers)
            }
            Request::Execute(commands) => {
                let sender = Sender {
                    connection: arrival.connection,
                    service: arrival.service,
                };
                let mut answers = Vec::with_capacity(commands.len());
                for command in commands {
                    let it = &mut self.servers[server];
                    let insists = command.access() == Access::Reader { insists: true }
                        && it.keeps_readers_out(at, command.key());
                    let answer = it.execute(at, sender, command);
                    // A counter that is ahead does not keep a key from being set.
                    if matches!(answer, Ok(Vote::Granted | Vote::Outbid { .. })) {
                        self.note_granted(at, server, command.operation());
                    }
                    let what = (
                        server,
                        command.value(),
                        format!("{:?}", command.operation()),
                    );
                    let text = || format!("server {server} {command:?} -> {answer:?}");
                    self.trace.note(at, what, text);
                    if let Some(kind) = seen_as(command.operation()) {
                        self.seen.note(kind);
                    }
                    if answer.is_ok() {
                        self.mark(at, server, command);
                    }
                    if insists && answer == Ok(Vote::Granted) {
                        self.seen.note(Seen::ReaderInsisted);
                    }
                    if answer.is_err() {
                        self.seen.note(Seen::Refused);
                        if let Some(refusal) = refusal {
                            self.seen.note(refusal.seen_as());
                        }
                    }
                    answers.push(answer);
                    // A look changes nothing that a server would send word of.
                    let is_look = matches!(command.operation(), Operation::Probe { .. });
                    for key in command.keys() {
                        if is_look {
                            self.plan_expiry(at, server, key);
                        } else {
                            self.notify_of(at, server, key);
                        }
                    }
                }
                Response::Executed(answers)
            }
        })
    }

    /// Sends an answer back.
    fn answer(&mut self, at: u64, arrival: &Arrival, reply: Reply) {
        let mut late = 0;
        if self.servers[arrival.server].slow_until > at {
            late += self.rng.around(SECOND);
        }
        if self.befalls(Seen::VeryLate) {
            late += self.rng.around(2 * SECOND);
        }
        let is_first = matches!(arrival.request, Request::Describe) && arrival.number == 1;
        if is_first && self.befalls(Seen::ConnectSlow) {
            late += self.rng.around(SECOND);
        }
        let connection = arrival.connection;
        if self.is_lost(connection, Loses::Answers) {
            return self.expect_end(connection, arrival.number, &arrival.request);
        }
        if let Some(at) = self.delivery(at + late, connection) {
            let number = arrival.number;
            let deliver = move |network: &mut Self| network.deliver(connection, number, reply);
            self.queue.push_to_network(at, deliver);
        }
    }

    /// Returns when something that a server sends then reaches the other end.
    pub(super) fn delivery(&mut self, at: u64, id: ConnectionId) -> Option<u64> {
        if self.is_lost(id, Loses::Answers) {
            return None;
        }
        let route = self.connections.get(&id)?.route();
        let delay = self.delay(route);
        let after = self.links.get(&route).map_or(0, |it| it.answers_after);
        let connection = self.connections.get_mut(&id)?;
        let at = (at + delay).max(after).max(connection.last_delivery + 1);
        connection.last_delivery = at;
        Some(at)
    }

    /// An answer reaches the process.
    fn deliver(&mut self, id: ConnectionId, number: u64, reply: Reply) {
        let at = self.at();
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(question) = connection.waiting.remove(&number) {
            let is_refusal =
                matches!(&reply, Ok(Response::Executed(all)) if all.iter().any(Result::is_err));
            if (is_refusal || at > question.sent + IN_TIME) && connection.prompt_since.is_some() {
                connection.prompt_since = Some(at);
            }
            match at.saturating_sub(question.sent) {
                passed if passed > TOO_LATE => self.seen.note(Seen::AnswerTooLate),
                passed if passed > LATE => self.seen.note(Seen::AnswerLate),
                _ => {}
            }
            // An error means that the request was given up.
            let _ = question.sender.send(reply);
        }
    }

    /// Breaks a connection at the server's end. The process hears of it a little later.
    pub(crate) fn reset(&mut self, id: ConnectionId) {
        let at = self.at();
        if let Some(at) = self.delivery(at, id) {
            self.queue
                .push_to_network(at, move |network| network.break_off(id));
        }
    }

    /// Breaks all connections to a server. Some processes hear nothing of it.
    pub(crate) fn reset_all(&mut self, server: usize) {
        for id in self.connections_to(server) {
            if self.befalls(Seen::HalfOpen) {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_half_open = true;
                }
            } else {
                self.reset(id);
            }
        }
    }

    /// The process hears that a connection is broken.
    pub(crate) fn break_off(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        for (_, question) in connection.waiting {
            let error = match connection.generation {
                Some(_) => disconnected(),
                None => unreachable(),
            };
            let _ = question.sender.send(Err(error));
        }
        if let Some(closed) = connection.closed {
            let _ = closed.send(disconnected());
        }
    }
}

/// Returns as what a command counts.
fn seen_as(operation: Operation) -> Option<Seen> {
    match operation {
        Operation::Acquire { .. } => Some(Seen::SetCommand),
        Operation::Adopt { .. } => Some(Seen::AdoptCommand),
        Operation::Fence { .. } => Some(Seen::FenceCommand),
        Operation::Extend { .. } => Some(Seen::ExtendCommand),
        Operation::Release { .. } => Some(Seen::ReleaseCommand),
        Operation::Probe { .. } => Some(Seen::ProbeCommand),
        _ => None,
    }
}
