use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    commands::Commands,
    launch::{Launch, Mode},
    port::Port,
    proxy::Proxy,
    server::{RedisServer, on_a_free_port},
    spawn_error::SpawnError,
};

/// The most processes that a group can have.
const MOST: usize = 200;

/// A process of a group of processes that connect to each other. All its peers and clients reach the process
/// through proxies, whose addresses the process announces.
///
/// ```text
///   client, from 127.0.0.1 ----> Proxy -----> process, connects from 127.0.0.2
///   peer,   from 127.0.0.3 ------^
/// ```
///
/// On Linux each process connects from an address of its own. So a proxy knows the peers that connect, and can
/// cut each of them off.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: RedisServer,
    /// In front of the port for commands.
    pub(super) proxy: Proxy,
    source: Option<IpAddr>,
}

impl Member {
    /// Starts a process as the member with this number, given the port that it announces.
    pub(super) fn spawn(
        number: usize,
        sources: &[IpAddr],
        mode: impl Fn(u16) -> Mode,
    ) -> Result<Self, SpawnError> {
        on_a_free_port(|| {
            let port = Port::reserve()?;
            let proxy = Proxy::spawn_between(sources, port.address())?;
            let launch = Launch {
                mode: mode(proxy.address().port()),
                source: sources.get(number).copied(),
            };
            Ok(Self {
                process: RedisServer::start(port, launch)?,
                proxy,
                source: sources.get(number).copied(),
            })
        })
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

    /// Holds back everything between two members.
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

    /// Lets everything between two members pass.
    pub(super) fn join(&self, other: &Self) {
        self.proxies_for(other, Proxy::join);
        other.proxies_for(self, Proxy::join);
    }

    fn proxies_for(&self, peer: &Self, act: fn(&Proxy, IpAddr)) {
        let Some(source) = peer.source else {
            return;
        };
        act(&self.proxy, source);
    }
}

/// Cuts the members on one side off from those on the other. Members on the same side reach each other.
pub(super) fn divide(members: &[(&Member, bool)]) {
    for (number, (member, side)) in members.iter().enumerate() {
        for (other, other_side) in &members[..number] {
            if side == other_side {
                member.join(other);
            } else {
                member.part(other);
            }
        }
    }
}

/// Returns the addresses that the members of a group connect from. The first address is the one of clients.
///
/// # Panics
///
/// If there are too many members.
pub(super) fn sources(members: usize) -> Vec<IpAddr> {
    assert!(members <= MOST, "a group has at most {MOST} processes");
    // Other systems have only one address on the loopback interface.
    let members = if cfg!(target_os = "linux") {
        members
    } else {
        0
    };
    let numbers = (2_u8..).take(members);
    numbers
        .map(|it| Ipv4Addr::new(127, 0, 0, it).into())
        .collect()
}
