use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use super::{
    commands::Commands,
    error::SpawnError,
    launch::{Launch, Mode},
    port::Port,
    proxy::Proxy,
    server::{RedisServer, on_a_free_port},
};

/// The most processes that a group can have.
const MOST: usize = 200;

/// How far the port of a node's bus is from the node's port. Before version 7, no option sets it.
const BUS_DISTANCE: u16 = 10_000;

/// How many ports to try until one has a free port at that distance.
const PAIR_TRIES: usize = 100;

/// A process of a group of processes that connect to each other: its peers. All peers and clients reach the process
/// through proxies, whose addresses the process announces.
///
/// ```text
///   client, from 127.0.0.1 ----> Proxy -----> process, connects from 127.0.0.2
///   peer,   from 127.0.0.3 ------^            ^
///   peer,   from 127.0.0.3 ----> Proxy -------+ bus of a cluster
/// ```
///
/// On Linux each process connects from an address of its own. So a proxy knows the peers that connect, and can
/// cut each of them off.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) process: RedisServer,
    pub(super) proxy: Proxy,
    /// The second way for the peers, in a cluster.
    bus: Option<Bus>,
    source: Option<IpAddr>,
}

/// The port on which a node of a cluster talks to the other nodes, and the proxy in front of it.
#[derive(Debug)]
struct Bus {
    proxy: Proxy,
    _port: Port,
}

impl Peer {
    /// Starts a process as the peer with this number, given the ports that it announces: the one for commands, and in a
    /// cluster the one of its bus.
    pub(super) fn spawn(
        number: usize,
        sources: &[IpAddr],
        has_bus: bool,
        mode: impl Fn(u16, Option<u16>) -> Mode,
    ) -> Result<Self, SpawnError> {
        on_a_free_port(|| {
            let (port, bus) = if has_bus {
                let (port, bus) = reserve_with_bus()?;
                let proxy = Proxy::spawn_between(sources, bus.address())?;
                (port, Some(Bus { proxy, _port: bus }))
            } else {
                (Port::reserve()?, None)
            };
            let proxy = Proxy::spawn_between(sources, port.address())?;
            let announced = bus.as_ref().map(|it| it.proxy.address().port());
            let mode = mode(proxy.address().port(), announced);
            let source = sources.get(number).copied();
            Ok(Self {
                process: RedisServer::start(port, Launch { mode, source })?,
                proxy,
                bus,
                source,
            })
        })
    }

    /// Returns the address of the proxy in front of the process's bus.
    ///
    /// # Panics
    ///
    /// If the process is no node of a cluster.
    pub(super) fn bus_address(&self) -> SocketAddr {
        let bus = self.bus.as_ref().expect("a node of a cluster has a bus");
        bus.proxy.address()
    }

    /// Returns the address that the process announces.
    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Returns the way to the process itself, which no partition affects.
    pub(super) fn commands<'a>(&self, password: Option<&'a str>) -> Commands<'a> {
        Commands {
            server: self.process.address(),
            password,
        }
    }

    /// Holds back everything between two peers.
    ///
    /// # Panics
    ///
    /// On systems other than Linux.
    pub(super) fn part(&self, other: &Self) {
        let is_told_apart = self.source.is_some() && other.source.is_some();
        assert!(
            is_told_apart,
            "all processes of this system have one address, so none can be cut off"
        );
        self.proxies_for(other, Proxy::part_from);
        other.proxies_for(self, Proxy::part_from);
    }

    /// Lets everything between two peers pass.
    pub(super) fn join(&self, other: &Self) {
        self.proxies_for(other, Proxy::join);
        other.proxies_for(self, Proxy::join);
    }

    fn proxies_for(&self, peer: &Self, act: fn(&Proxy, IpAddr)) {
        let Some(source) = peer.source else {
            return;
        };
        act(&self.proxy, source);
        if let Some(bus) = &self.bus {
            act(&bus.proxy, source);
        }
    }
}

/// Reserves a port, and the port at the distance at which servers open their bus.
fn reserve_with_bus() -> io::Result<(Port, Port)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for _ in 0..PAIR_TRIES {
        let port = Port::reserve()?;
        let Some(bus) = port.address().port().checked_add(BUS_DISTANCE) else {
            continue;
        };
        match Port::reserve_number(bus) {
            Ok(bus) => return Ok((port, bus)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns each peer, and whether its number is one of these.
///
/// # Panics
///
/// If there is no peer with one of these numbers.
pub(super) fn sides<'a>(
    peers: &'a [Peer],
    numbers: &[usize],
) -> impl Iterator<Item = (&'a Peer, bool)> {
    let unknown = numbers.iter().find(|it| **it >= peers.len());
    assert_eq!(unknown, None, "there are only {}", peers.len());
    let peers = peers.iter().enumerate();
    peers.map(|(number, peer)| (peer, numbers.contains(&number)))
}

/// Cuts the peers on one side off from those on the other. Peers on the same side reach each other.
pub(super) fn divide<'a>(sides: impl Iterator<Item = (&'a Peer, bool)>) {
    let peers: Vec<_> = sides.collect();
    for (number, (peer, side)) in peers.iter().enumerate() {
        for (other, other_side) in &peers[..number] {
            if side == other_side {
                peer.join(other);
            } else {
                peer.part(other);
            }
        }
    }
}

/// Returns the number of the peer that a majority of the voters names by its port. Voters that do not answer count as part
/// of the whole.
pub(super) fn elect(peers: &[Peer], votes: &[Option<u16>]) -> Option<usize> {
    peers.iter().position(|peer| {
        let port = Some(peer.address().port());
        2 * votes.iter().filter(|vote| **vote == port).count() > votes.len()
    })
}

/// Returns the addresses that the peers of a group connect from. The first address is the one of clients.
///
/// # Panics
///
/// If there are too many peers.
pub(super) fn sources(peers: usize) -> Vec<IpAddr> {
    assert!(peers <= MOST, "a group has at most {MOST} processes");
    // Other systems have only one address on the loopback interface.
    let peers = if cfg!(target_os = "linux") { peers } else { 0 };
    let numbers = (2_u8..).take(peers);
    numbers
        .map(|it| Ipv4Addr::new(127, 0, 0, it).into())
        .collect()
}
