//! A faulty network between a client and a server.
//!
//! ```text
//!             +----------------------- Proxy ------------------------+
//!   client ---+--> Door ---> Relay, one for each connection          |
//!             |    accepts,  +--------------------------------------+|
//!             |    refuses,  | read -> parcels, in order -> write --++--> server
//!             |    ignores   |                 Link: delay, fate    ||
//!          <--+--------------+-- write <- parcels, in order <- read ||
//!             |              +--------------------------------------+|
//!             +------------------------------------------------------+
//! ```

mod door;
mod link;
mod relay;

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, mpsc as blocking},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{net::TcpStream, runtime, sync::mpsc, task::JoinSet};

use self::{
    door::{Admission, Door},
    link::Links,
    relay::Relay,
};
use super::port::Port;

pub use self::link::Link;

/// A TCP proxy on the loopback interface that simulates the faults of a network.
///
/// | fault | how |
/// |---|---|
/// | a slow network | [`requests`](Self::requests) or [`replies`](Self::replies), [`delay`](Link::delay) |
/// | a server that hangs, then continues | [`hold`](Link::hold), then [`pass`](Link::pass) |
/// | requests on one connection arrive after requests on the next one | `requests().`[`strand`](Link::strand)`()`, then [`pass`](Link::pass) |
/// | one-way loss: the request arrives, the reply does not | `replies().lose()` |
/// | a host that is gone: nothing arrives | [`lose`](Link::lose) both ways, and [`ignore`](Self::ignore) |
/// | a connection that breaks | [`reset`](Self::reset) |
/// | a server that is not running | [`refuse`](Self::refuse) and [`reset`](Self::reset) |
/// | a firewall that drops connection requests | [`ignore`](Self::ignore) |
/// | another server behind the same address | [`reroute`](Self::reroute), [`reroute_all`](Self::reroute_all) |
///
/// Faults can be changed at any time. They act at once, on existing connections, on new ones, and on bytes that
/// are on their way. [`heal`](Self::heal) ends all faults.
///
/// The proxy runs on a thread of its own. So the test may pause the clock of its own runtime, block the runtime
/// or end it. Dropping the proxy resets all connections, frees the port and ends the thread.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    origins: Origins,
    /// `None` only during the drop, which ends the thread.
    orders: Option<mpsc::UnboundedSender<(Order, Outcome)>>,
    thread: Option<JoinHandle<()>>,
}

/// The source of connections.
#[derive(Clone, Debug)]
struct Origins {
    clients: Arc<Links>,
    /// The links of other servers, by the addresses that they connect from.
    peers: Arc<[(IpAddr, Arc<Links>)]>,
}

/// An order to a proxy's thread.
#[derive(Debug)]
enum Order {
    Admit(Admission),
    Reset,
}

/// Takes the outcome of an order. Its receiver waits, so sending cannot fail.
type Outcome = blocking::Sender<io::Result<()>>;

impl Proxy {
    /// Starts a proxy in front of a server, on a free port of the loopback interface. The server need not be up.
    pub fn spawn(target: impl ToSocketAddrs) -> io::Result<Self> {
        Self::spawn_between(&[], target)
    }

    /// Starts a proxy in front of a server that other servers connect to, too. The faults of this proxy affect
    /// only clients. Connections from the addresses of the other servers, the peers, can be cut off one by one.
    pub(super) fn spawn_between(peers: &[IpAddr], target: impl ToSocketAddrs) -> io::Result<Self> {
        let target = resolve(target)?;
        let port = Port::reserve()?;
        let address = port.address();
        let links_of = |peer: &IpAddr| (*peer, Arc::new(Links::to(target)));
        let origins = Origins {
            clients: Arc::new(Links::to(target)),
            peers: peers.iter().map(links_of).collect(),
        };
        let origins_of_thread = origins.clone();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (started, outcome) = blocking::channel();
        let thread = thread::Builder::new()
            .name("redlock-proxy".into())
            .spawn(move || {
                // The constructor waits for the outcome, so sending it cannot fail.
                let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                runtime.block_on(async {
                    match Door::open(address) {
                        Ok(door) => {
                            let _ = started.send(Ok(()));
                            run(door, &origins_of_thread, inbox).await;
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })?;
        outcome.recv().expect("the thread sends an outcome")?;
        Ok(Self {
            port,
            origins,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Resets all connections on both sides, and returns when that is done. Reads and writes fail at once, and
    /// bytes on their way are lost. New connections are not affected.
    pub fn reset(&self) {
        self.order(Order::Reset);
    }

    /// Refuses new connections, like a host without a server. Existing connections go on.
    pub fn refuse(&self) {
        self.order(Order::Admit(Admission::Refuse));
    }

    /// Ignores new connections: a client that connects gets no answer until it gives up, or until a few seconds
    /// after connections are accepted again. Existing connections go on.
    ///
    /// On systems other than Linux, connections may seem to be accepted, and then stay silent.
    pub fn ignore(&self) {
        self.order(Order::Admit(Admission::Ignore));
    }

    /// Accepts new connections again. They are reset if the server is down.
    pub fn accept(&self) {
        self.order(Order::Admit(Admission::Accept));
    }

    /// Relays new connections to another server, like an endpoint after the promotion of a replica. Existing
    /// connections go on.
    pub fn reroute(&self, target: impl ToSocketAddrs) -> io::Result<()> {
        let target = resolve(target)?;
        self.origins
            .clients
            .route
            .send_modify(|route| route.target = target);
        Ok(())
    }

    /// Relays existing and new connections to another server. Clients stay connected, but bytes on their way
    /// are lost.
    pub fn reroute_all(&self, target: impl ToSocketAddrs) -> io::Result<()> {
        let target = resolve(target)?;
        self.origins.clients.route.send_modify(|route| {
            route.target = target;
            route.moved += 1;
        });
        Ok(())
    }

    /// Ends all faults: accepts new connections, and lets everything pass at once. Bytes that were held are
    /// delivered. Bytes that were lost stay lost, see [`Link::lose`].
    pub fn heal(&self) {
        for link in [self.requests(), self.replies()] {
            link.delay(Duration::ZERO);
            link.pass();
        }
        self.accept();
    }

    /// Holds back everything from and to this peer, until [`join`](Self::join).
    pub(super) fn part_from(&self, peer: IpAddr) {
        self.peer(peer).for_each(Link::hold);
    }

    /// Lets everything from and to this peer pass.
    pub(super) fn join(&self, peer: IpAddr) {
        self.peer(peer).for_each(Link::pass);
    }

    fn peer(&self, peer: IpAddr) -> impl Iterator<Item = &Link> {
        let links = self.origins.peers.iter();
        let links = links.filter(move |(it, _)| *it == peer);
        links.flat_map(|(_, links)| [&links.requests, &links.replies])
    }

    /// Returns the direction from the clients to the server.
    #[must_use]
    pub fn requests(&self) -> &Link {
        &self.origins.clients.requests
    }

    /// Returns the direction from the server to the clients.
    #[must_use]
    pub fn replies(&self) -> &Link {
        &self.origins.clients.replies
    }

    /// Returns the number of connections that were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.requests().connections()
    }

    /// Returns the address to connect to instead of the server's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the URL to use instead of the server's, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Sends an order to the thread, and waits until it is carried out.
    fn order(&self, order: Order) {
        let (done, outcome) = blocking::channel();
        let sent = self.orders.as_ref().map(|it| it.send((order, done)));
        assert!(matches!(sent, Some(Ok(()))), "the proxy's thread panicked");
        // The wait takes only a few system calls, since the thread never blocks.
        match outcome.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("the proxy cannot listen on its port: {error}"),
            Err(_) => panic!("the proxy's thread panicked"),
        }
    }
}

fn resolve(target: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "no address to relay to");
    target.to_socket_addrs()?.next().ok_or_else(no_address)
}

impl Origins {
    /// Returns the links of the server that has connected, unless a client has.
    fn peer(&self, connection: &TcpStream) -> Option<&Arc<Links>> {
        // An error means that the connection is broken already.
        let address = connection.peer_addr().ok()?.ip();
        let mut peers = self.peers.iter();
        peers.find_map(|(peer, links)| (*peer == address).then_some(links))
    }
}

async fn run(
    mut door: Door,
    origins: &Origins,
    mut orders: mpsc::UnboundedReceiver<(Order, Outcome)>,
) {
    let mut relays = JoinSet::new();
    let mut peers = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                // Dropping the relays resets their connections.
                None => return,
                Some((Order::Reset, outcome)) => {
                    relays.shutdown().await;
                    let _ = outcome.send(Ok(()));
                }
                Some((Order::Admit(admission), outcome)) => {
                    let _ = outcome.send(door.admit(admission).await);
                }
            },
            connection = door.accept() => match origins.peer(&connection) {
                Some(links) => drop(peers.spawn(Relay::new(connection, Arc::clone(links)).run())),
                None => {
                    let links = Arc::clone(&origins.clients);
                    relays.spawn(Relay::new(connection, links).run());
                }
            },
            Some(_) = relays.join_next() => {}
            Some(_) = peers.join_next() => {}
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which it has reported on standard error.
            let _ = thread.join();
        }
    }
}
