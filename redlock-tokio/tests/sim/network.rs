//! What is under way between processes and servers. Each connection delivers in order, in both directions.

mod answers;
mod invalidations;
mod leftovers;
mod marks;
mod reliable;
mod serving;
mod silence;
mod weather;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use redlock_tokio::NodeError;
use tokio::sync::{mpsc, oneshot};

use self::{leftovers::Releases, reliable::Changes, silence::Unanswered};
pub(crate) use self::{reliable::Witness, weather::Weather};
use crate::{
    authority::Authorities,
    clock::MILLI,
    events::Queue,
    host::Host,
    message::{Arrival, ConnectionId, Loses, Reply, Request, Response, Word},
    requests::ServiceId,
    rng::Rng,
    seen::{Seen, Tally},
    server::Server,
    trace::Trace,
    violation::Violation,
};

/// A handle of the network that all parts of a world share.
#[derive(Clone)]
pub(crate) struct SharedNetwork(Arc<Mutex<Network>>);

pub(crate) struct Network {
    /// What time it is, for clocks that do not look into the network.
    pub(crate) now: Arc<AtomicU64>,
    pub(crate) queue: Queue,
    /// All machines. The address `i` leads to the machine `i` at the beginning.
    pub(crate) servers: Vec<Server>,
    /// Of a world in which they name the masters.
    pub(crate) authorities: Option<Authorities>,
    /// To which machine new connections to each address lead, where that has changed.
    moved: BTreeMap<usize, usize>,
    connections: BTreeMap<ConnectionId, Connection>,
    opened: u64,
    links: BTreeMap<Route, Link>,
    pub(crate) weather: Weather,
    /// The faults are over, so that all ways are short, even those that are used later for the first time.
    pub(crate) is_calm: bool,
    /// Whether requests of one connection arrive in the order in which they were sent.
    in_order: bool,
    pub(crate) releases: Releases,
    changes: Changes,
    pub(crate) violations: Vec<Violation>,
    /// When a foreign client deleted a key of ours from a server last.
    pub(crate) foreign_delete_at: u64,
    pub(crate) rng: Rng,
    pub(crate) seen: Tally,
    pub(crate) trace: Trace,
}

/// The way between a process and an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Route {
    pub(crate) process: usize,
    pub(crate) address: usize,
}

/// What a route is like.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// How many times as long as a short way.
    distance: u64,
    /// Nothing passes in this direction before this time.
    requests_after: u64,
    answers_after: u64,
}

struct Connection {
    host: Arc<Host>,
    /// The `Redlock` that has opened it.
    service: ServiceId,
    address: usize,
    server: usize,
    /// The generation of the server that it leads to, once it has arrived there.
    generation: Option<u32>,
    /// Nothing arrives any more, and nobody is told.
    is_half_open: bool,
    opened_at: u64,
    /// What is lost from now on, while the connection stays open.
    loses: Option<Loses>,
    unanswered: Vec<Unanswered>,
    last_arrival: u64,
    last_delivery: u64,
    asked: u64,
    /// Since when the server answers in time and refuses nothing, once it was asked for locks.
    prompt_since: Option<u64>,
    /// The requests that have no answer yet.
    waiting: BTreeMap<u64, Question>,
    invalidations: Option<mpsc::UnboundedSender<Word>>,
    closed: Option<oneshot::Sender<NodeError>>,
}

/// A request that has no answer yet.
struct Question {
    sent: u64,
    sender: oneshot::Sender<Reply>,
}

impl SharedNetwork {
    pub(crate) fn new(network: Network) -> Self {
        Self(Arc::new(Mutex::new(network)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().expect("no code panics under this lock")
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
            authorities: None,
            moved: BTreeMap::new(),
            connections: BTreeMap::new(),
            opened: 0,
            links: BTreeMap::new(),
            weather,
            is_calm: false,
            in_order,
            releases: Releases::default(),
            changes: Changes::default(),
            violations: Vec::new(),
            foreign_delete_at: 0,
            rng,
            seen: Tally::default(),
            trace,
        }
    }

    pub(crate) fn at(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Draws whether this befalls a message, a batch or a connection, and notes it.
    fn befalls(&mut self, what: Seen) -> bool {
        let is_hit = self.rng.chance(self.weather.chance(what));
        if is_hit {
            self.seen.note(what);
        }
        is_hit
    }

    /// Returns the machine to which new connections to an address lead.
    pub(crate) fn machine(&self, address: usize) -> usize {
        self.moved.get(&address).copied().unwrap_or(address)
    }

    /// Lets new connections to an address lead to another machine.
    pub(crate) fn move_address(&mut self, address: usize, machine: usize) {
        self.moved.insert(address, machine);
    }

    /// Ends the faults of the network.
    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
        self.weather = Weather::calm();
        for link in self.links.values_mut() {
            link.distance = 1;
        }
    }

    /// Starts to open a connection to an address, and asks the server what it is.
    pub(crate) fn open(
        &mut self,
        host: &Arc<Host>,
        service: ServiceId,
        address: usize,
    ) -> (ConnectionId, oneshot::Receiver<Reply>) {
        self.opened += 1;
        let id = ConnectionId(self.opened);
        let now = host.now();
        let server = self.machine(address);
        let hangs = self.befalls(Seen::ConnectHangs);
        self.connections.insert(
            id,
            Connection {
                host: Arc::clone(host),
                service,
                address,
                server,
                generation: None,
                is_half_open: hangs,
                opened_at: now,
                loses: None,
                unanswered: Vec::new(),
                last_arrival: now,
                last_delivery: now,
                asked: 0,
                prompt_since: None,
                waiting: BTreeMap::new(),
                invalidations: None,
                closed: None,
            },
        );
        let reply = self.send(id, Request::Describe);
        if !hangs && self.befalls(Seen::ConnectRefused) {
            let refused = move |network: &mut Self| network.break_off(id);
            self.queue.push_to_network(now + MILLI, refused);
        }
        (id, reply)
    }

    /// Sends a request. The answer is an error if the connection breaks before.
    pub(crate) fn send(&mut self, id: ConnectionId, request: Request) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let Some(route) = self.connections.get(&id).map(Connection::route) else {
            let _ = sender.send(Err(disconnected()));
            return receiver;
        };
        let delay = self.delay(route);
        let after = self.links.get(&route).map_or(0, |it| it.requests_after);
        let Some(connection) = self.connections.get_mut(&id) else {
            return receiver;
        };
        let sent = connection.host.now();
        let mut at = (sent + delay).max(after).max(connection.last_arrival + 1);
        if !self.in_order && request.releases() {
            at = sent + 1;
        }
        connection.last_arrival = connection.last_arrival.max(at);
        connection.asked += 1;
        let number = connection.asked;
        connection.waiting.insert(number, Question { sent, sender });
        let (server, service) = (connection.server, connection.service);
        connection.host.has_sent.notify_one();
        self.note_sent(id, sent, &request);
        let arrival = Arrival {
            connection: id,
            server,
            service,
            number,
            request,
        };
        let arrive = |network: &mut Self| network.arrive(arrival);
        self.queue.push_to_network(at, arrive);
        receiver
    }

    /// The process closes a connection. What it has sent may still arrive.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.look_for_silence(id, &connection);
        }
    }

    /// Returns the connections to a server.
    fn connections_to(&self, server: usize) -> Vec<ConnectionId> {
        let connections = self.connections.iter();
        let those = connections.filter(|(_, it)| it.server == server);
        those.map(|(id, _)| *id).collect()
    }

    /// Returns how many connections a process has.
    pub(crate) fn connections_of(&self, host: &Arc<Host>) -> usize {
        let connections = self.connections.values();
        connections.filter(|it| Arc::ptr_eq(&it.host, host)).count()
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

    /// Stops one or both directions of a route for a while. Messages that are sent meanwhile arrive afterwards.
    pub(crate) fn stall(&mut self, route: Route, requests_after: u64, answers_after: u64) {
        let link = self.link(route);
        link.requests_after = link.requests_after.max(requests_after);
        link.answers_after = link.answers_after.max(answers_after);
    }

    /// Returns whether a connection is open on a route.
    pub(crate) fn has_connection(&self, route: Route) -> bool {
        self.connections.values().any(|it| it.route() == route)
    }

    pub(crate) fn delay(&mut self, route: Route) -> u64 {
        let distance = self.link(route).distance;
        let delay = self.weather.draw_delay(&mut self.rng, distance);
        if self.befalls(Seen::Slow) {
            delay + self.rng.around(60 * MILLI)
        } else {
            delay
        }
    }

    /// Returns a route, whose length is drawn when it is used first.
    fn link(&mut self, route: Route) -> &mut Link {
        let (rng, is_calm) = (&mut self.rng, self.is_calm);
        self.links.entry(route).or_insert_with(|| Link {
            distance: if is_calm {
                1
            } else {
                rng.pick(&[1, 1, 1, 1, 3, 10])
            },
            requests_after: 0,
            answers_after: 0,
        })
    }
}

impl Connection {
    fn route(&self) -> Route {
        Route {
            process: self.host.process,
            address: self.address,
        }
    }
}

fn disconnected() -> NodeError {
    NodeError::Disconnected("connection reset by peer".into())
}

fn unreachable() -> NodeError {
    NodeError::Unreachable("connection refused".into())
}
