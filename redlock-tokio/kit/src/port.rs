use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// A port of the loopback interface.
///
/// On Linux the port stays reserved while nobody listens on it, such as between a server's end and its
/// restart: a socket that never listens is bound to it. The kernel does not choose a bound port for a program
/// that asks for any port. A program that names the port, and sets `SO_REUSEADDR` as servers do, can still
/// listen on it.
#[derive(Debug)]
pub(super) struct Port {
    address: SocketAddr,
    _reservation: Option<TcpSocket>,
}

impl Port {
    /// Reserves any free port.
    pub(super) fn reserve() -> io::Result<Self> {
        Self::reserve_number(0)
    }

    /// Reserves the free port with this number. Zero stands for any port.
    pub(super) fn reserve_number(number: u16) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, number).into())?;
        Ok(Self {
            address: socket.local_addr()?,
            // On other systems the reservation would also exclude the server.
            _reservation: cfg!(target_os = "linux").then_some(socket),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}
