//! What is under way between processes and servers. Each connection delivers in order, in both directions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_tokio::{Answer, Command, Key, NodeError, Operation, Server as Described};
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::{MICRO, MILLI},
    events::{Event, Queue},
    host::Host,
    rng::Rng,
    seen::{Seen, Tally},
    server::{Outage, Server},
    trace::Trace,
};

/// A handle of the network that all parts of a world share.
#[derive(Clone)]
pub(crate) struct SharedNetwork(Arc<Mutex<Network>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(u64);

pub(crate) struct Network {
    /// What time it is, for clocks that do not look into the network.
    pub(crate) now: Arc<AtomicU64>,
    pub(crate) queue: Queue,
    pub(crate) servers: Vec<Server>,
    connections: BTreeMap<ConnectionId, Connection>,
    opened: u64,
    links: BTreeMap<Route, Link>,
    pub(crate) weather: Weather,
    /// Whether requests of one connection arrive in the order in which they were sent.
    in_order: bool,
    pub(crate) rng: Rng,
    pub(crate) seen: Tally,
    pub(crate) trace: Trace,
}

/// The way between a process and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Route {
    pub(crate) process: usize,
    pub(crate) server: usize,
}

/// Until when nothing passes a route in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    requests_after: u64,
    answers_after: u64,
}

/// How badly connections behave. Chances are per million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The mean of the delay in one direction.
    pub(crate) delay: u64,
    /// Some messages take much longer.
    pub(crate) slow: u32,
    pub(crate) reset_before: u32,
    pub(crate) reset_after: u32,
    pub(crate) invalidation_lost: u32,
    pub(crate) invalidation_late: u32,
    pub(crate) invalidation_doubled: u32,
    pub(crate) invalidation_invented: u32,
}

struct Connection {
    host: Arc<Host>,
    server: usize,
    /// The process of the server that it leads to, once it has arrived there.
    incarnation: Option<u32>,
    last_arrival: u64,
    last_delivery: u64,
    asked: u64,
    /// The requests that have no answer yet.
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
    invalidations: Option<mpsc::UnboundedSender<Option<Key>>>,
    closed: Option<oneshot::Sender<NodeError>>,
}

/// A question to a server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Describe,
    Execute(Vec<Command>),
    HistoryAge,
}

impl Request {
    /// Returns whether it is to release keys.
    fn releases(&self) -> bool {
        let is_release = |it: &Command| matches!(it.operation(), Operation::Release { .. });
        matches!(self, Self::Execute(commands) if commands.iter().any(is_release))
    }
}

/// What a server says to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Described(Described),
    Executed(Vec<Answer>),
    Age(Duration),
}

pub(crate) type Reply = Result<Response, NodeError>;

impl SharedNetwork {
    pub(crate) fn new(network: Network) -> Self {
        Self(Arc::new(Mutex::new(network)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Network> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}

impl Network {
    pub(crate) fn new(
        servers: Vec<Server>,
        weather: Weather,
        in_order: bool,
        rng: Rng,
        trace: Trace,
    ) -> Self {
        Self {
            now: Arc::default(),
            queue: Queue::default(),
            servers,
            connections: BTreeMap::new(),
            opened: 0,
            links: BTreeMap::new(),
            weather,
            in_order,
            rng,
            seen: Tally::new(),
            trace,
        }
    }

    pub(crate) fn at(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Starts to open a connection, and asks the server what it is.
    pub(crate) fn open(
        &mut self,
        host: &Arc<Host>,
        server: usize,
    ) -> (ConnectionId, oneshot::Receiver<Reply>) {
        self.opened += 1;
        let id = ConnectionId(self.opened);
        let now = host.now();
        self.connections.insert(
            id,
            Connection {
                host: Arc::clone(host),
                server,
                incarnation: None,
                last_arrival: now,
                last_delivery: now,
                asked: 0,
                waiting: BTreeMap::new(),
                invalidations: None,
                closed: None,
            },
        );
        (id, self.send(id, Request::Describe))
    }

    /// Sends a request. The answer is an error if the connection breaks before.
    pub(crate) fn send(&mut self, id: ConnectionId, request: Request) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let Some(connection) = self.connections.get(&id) else {
            let _ = sender.send(Err(disconnected()));
            return receiver;
        };
        let now = connection.host.now();
        let route = connection.route();
        let delay = self.delay();
        let after = self.links.get(&route).map_or(0, |it| it.requests_after);
        let Some(connection) = self.connections.get_mut(&id) else {
            return receiver;
        };
        let mut at = (now + delay).max(after).max(connection.last_arrival + 1);
        if !self.in_order && request.releases() {
            at = now + 1;
        }
        connection.last_arrival = connection.last_arrival.max(at);
        connection.asked += 1;
        let number = connection.asked;
        connection.waiting.insert(number, sender);
        let server = connection.server;
        connection.host.has_sent.notify_one();
        let arrival = Event::Arrive(Arrival {
            connection: id,
            server,
            number,
            request,
        });
        self.queue.push(at, arrival);
        receiver
    }

    /// A request reaches its server.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        let at = self.at();
        let Arrival {
            connection: id,
            server,
            number,
            request,
        } = arrival;
        match self.servers[server].outage {
            Some(Outage::Silent) => return,
            Some(Outage::Refuses) => return self.reset(id),
            None => {}
        }
        let incarnation = self.servers[server].incarnation;
        if let Some(connection) = self.connections.get_mut(&id) {
            let leads_to = *connection.incarnation.get_or_insert(incarnation);
            if leads_to != incarnation {
                return self.reset(id);
            }
        }
        if self.rng.chance(self.weather.reset_before) {
            self.seen.note(Seen::ResetBefore);
            return self.reset(id);
        }
        let response = self.carry_out(at, id, server, &request);
        if self.rng.chance(self.weather.reset_after) {
            self.seen.note(Seen::ResetAfter);
            return self.reset(id);
        }
        self.answer(at, id, number, response);
    }

    fn carry_out(
        &mut self,
        at: u64,
        id: ConnectionId,
        server: usize,
        request: &Request,
    ) -> Response {
        match request {
            Request::Describe => Response::Described(self.servers[server].describe(at)),
            Request::HistoryAge => Response::Age(self.servers[server].history_age(at)),
            Request::Execute(commands) => {
                let mut answers = Vec::with_capacity(commands.len());
                for command in commands {
                    let answer = self.servers[server].execute(at, id, command);
                    let what = (
                        server,
                        command.token(),
                        format!("{:?}", command.operation()),
                    );
                    let text = || format!("server {server} {command:?} -> {answer:?}");
                    self.trace.note(at, what, text);
                    answers.push(answer);
                    for key in command.keys() {
                        self.notify_of(at, server, key);
                    }
                }
                Response::Executed(answers)
            }
        }
    }

    /// Sends an answer back.
    fn answer(&mut self, at: u64, id: ConnectionId, number: u64, response: Response) {
        if let Some(at) = self.delivery(at, id) {
            let event = Event::Answer {
                connection: id,
                number,
                response,
            };
            self.queue.push(at, event);
        }
    }

    /// Returns when something that a server sends now reaches the other end.
    fn delivery(&mut self, at: u64, id: ConnectionId) -> Option<u64> {
        let delay = self.delay();
        let connection = self.connections.get_mut(&id)?;
        let after = self
            .links
            .get(&connection.route())
            .map_or(0, |it| it.answers_after);
        let at = (at + delay).max(after).max(connection.last_delivery + 1);
        connection.last_delivery = at;
        Some(at)
    }

    /// Sends word that a key is gone to all that asked for it, or plans to do so when it expires.
    pub(crate) fn notify_of(&mut self, at: u64, server: usize, key: &Key) {
        let trackers: BTreeSet<_> = self.servers[server].take_trackers(at, key);
        for id in trackers {
            self.invalidate(at, id, key);
        }
        if let Some(left) = self.servers[server].expires_in(at, key) {
            let key = key.clone();
            self.queue.push(at + left, Event::Expire { server, key });
        }
    }

    fn invalidate(&mut self, at: u64, id: ConnectionId, key: &Key) {
        let weather = self.weather;
        if self.rng.chance(weather.invalidation_lost) {
            return self.seen.note(Seen::InvalidationLost);
        }
        let mut times = 1;
        if self.rng.chance(weather.invalidation_doubled) {
            self.seen.note(Seen::InvalidationDoubled);
            times = 2;
        }
        for _ in 0..times {
            let late = if self.rng.chance(weather.invalidation_late) {
                self.seen.note(Seen::InvalidationLate);
                self.rng.around(500 * MILLI)
            } else {
                0
            };
            let Some(at) = self.delivery(at, id) else {
                return;
            };
            let key = Some(key.clone());
            self.queue.push(
                at + late,
                Event::Invalidate {
                    connection: id,
                    key,
                },
            );
        }
    }

    /// An answer reaches the process.
    pub(crate) fn deliver(&mut self, id: ConnectionId, number: u64, response: Response) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(sender) = connection.waiting.remove(&number) {
            // An error means that the request was given up.
            let _ = sender.send(Ok(response));
        }
    }

    /// Word that a key is gone reaches the process.
    pub(crate) fn deliver_invalidation(&mut self, id: ConnectionId, key: Option<Key>) {
        let invalidations = self
            .connections
            .get(&id)
            .and_then(|it| it.invalidations.as_ref());
        if let Some(invalidations) = invalidations {
            let _ = invalidations.send(key);
        }
    }

    /// Breaks a connection at the server's end. The process hears of it a little later.
    pub(crate) fn reset(&mut self, id: ConnectionId) {
        let at = self.at();
        if let Some(at) = self.delivery(at, id) {
            self.queue.push(at, Event::Break { connection: id });
        }
    }

    /// Breaks all connections to a server.
    pub(crate) fn reset_all(&mut self, server: usize) {
        let connections = self.connections.iter();
        let ids: Vec<_> = connections
            .filter(|(_, it)| it.server == server)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.reset(id);
        }
    }

    /// The process hears that a connection is broken.
    pub(crate) fn break_off(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        for (_, sender) in connection.waiting {
            let error = match connection.incarnation {
                Some(_) => disconnected(),
                None => NodeError::Unreachable("connection refused".into()),
            };
            let _ = sender.send(Err(error));
        }
        if let Some(closed) = connection.closed {
            let _ = closed.send(disconnected());
        }
    }

    /// The process closes a connection. What it has sent may still arrive.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
    }

    /// A process has ended. Nothing reaches it any more.
    pub(crate) fn forget(&mut self, host: &Arc<Host>) {
        self.connections
            .retain(|_, it| !Arc::ptr_eq(&it.host, host));
    }

    /// Returns what tells that a connection is broken.
    pub(crate) fn closed(&mut self, id: ConnectionId) -> oneshot::Receiver<NodeError> {
        let (sender, receiver) = oneshot::channel();
        match self.connections.get_mut(&id) {
            Some(connection) => connection.closed = Some(sender),
            None => drop(sender.send(disconnected())),
        }
        receiver
    }

    /// Returns where word of keys that are gone arrives.
    pub(crate) fn invalidations(
        &mut self,
        id: ConnectionId,
    ) -> mpsc::UnboundedReceiver<Option<Key>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.invalidations = Some(sender);
        }
        receiver
    }

    /// Stops one or both directions of a route for a while. What is sent meanwhile arrives afterwards.
    pub(crate) fn stall(&mut self, route: Route, requests_after: u64, answers_after: u64) {
        let link = self.links.entry(route).or_default();
        link.requests_after = link.requests_after.max(requests_after);
        link.answers_after = link.answers_after.max(answers_after);
    }

    /// Claims to some process that any key may be gone.
    pub(crate) fn invent_invalidation(&mut self) {
        if !self.connections.is_empty() && self.rng.chance(self.weather.invalidation_invented) {
            let index = self.rng.usize(..self.connections.len());
            let id = self.connections.keys().nth(index).copied();
            self.seen.note(Seen::InvalidationInvented);
            if let Some(id) = id {
                self.deliver_invalidation(id, None);
            }
        }
    }

    fn delay(&mut self) -> u64 {
        let mean = self.weather.delay;
        let delay = self.rng.around(mean) + 50 * MICRO;
        if self.rng.chance(self.weather.slow) {
            self.seen.note(Seen::Slow);
            delay + self.rng.around(60 * MILLI)
        } else {
            delay
        }
    }
}

impl Connection {
    fn route(&self) -> Route {
        Route {
            process: self.host.process,
            server: self.server,
        }
    }
}

/// A request that reaches a server.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    connection: ConnectionId,
    server: usize,
    number: u64,
    request: Request,
}

fn disconnected() -> NodeError {
    NodeError::Disconnected("connection reset by peer".into())
}
