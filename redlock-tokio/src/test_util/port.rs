use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// A port of the loopback interface.
///
/// On Linux it stays ours while nobody listens on it, such as between a server's end and its
/// restart: a socket is bound to it that never listens, and the kernel gives a bound port to nobody
/// who asks for any. Whoever names the port, and sets `SO_REUSEADDR` as servers do, can listen on it
/// all the same.
#[derive(Debug)]
pub(super) struct Port {
    address: SocketAddr,
    _reservation: Option<TcpSocket>,
}

impl Port {
    pub(super) fn reserve() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self {
            address: socket.local_addr()?,
            // Elsewhere the reservation would keep the server out, too.
            _reservation: cfg!(target_os = "linux").then_some(socket),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}
