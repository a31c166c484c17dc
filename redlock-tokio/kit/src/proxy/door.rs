use std::{future::pending, io, net::SocketAddr, time::Duration};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

/// How many connections may wait to be accepted. No test opens as many at once.
const BACKLOG: u32 = 1024;

/// How long the connection that fills a backlog may take. It does not leave the machine.
const FILLER_LIMIT: Duration = Duration::from_millis(100);

/// How a proxy receives new connections.
pub(super) struct Door {
    address: SocketAddr,
    state: State,
}

enum State {
    Accepting(TcpListener),
    /// No socket listens.
    Refusing,
    /// The backlog is full, so the kernel ignores requests for new connections.
    Ignoring {
        listener: TcpListener,
        /// Fills the backlog.
        _filler: Option<TcpStream>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Admission {
    Accept,
    Refuse,
    Ignore,
}

impl Door {
    /// Opens a door that accepts. Must be called within a runtime.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let state = State::Accepting(listen(address, BACKLOG)?);
        Ok(Self { address, state })
    }

    pub(super) async fn admit(&mut self, admission: Admission) -> io::Result<()> {
        // A new listener would reset the connections that wait to be accepted.
        if matches!(
            (admission, &self.state),
            (Admission::Accept, State::Accepting(_))
        ) {
            return Ok(());
        }
        // Only one socket can listen on a port.
        self.close();
        self.state = match admission {
            Admission::Refuse => State::Refusing,
            Admission::Accept => State::Accepting(listen(self.address, BACKLOG)?),
            Admission::Ignore => {
                // A backlog of zero has room for one connection. If another client took it, the filler
                // fails, and the backlog is full all the same.
                let listener = listen(self.address, 0)?;
                let filler = timeout(FILLER_LIMIT, TcpStream::connect(self.address)).await;
                State::Ignoring {
                    listener,
                    _filler: filler.ok().transpose()?,
                }
            }
        };
        Ok(())
    }

    fn close(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Refusing);
        if let State::Accepting(listener) | State::Ignoring { listener, .. } = state {
            // Closing the listener is not enough: a process that another thread is starting has a copy for a
            // moment. On systems other than Linux this fails and does nothing.
            let _ = shutdown(&listener, Shutdown::Read);
        }
    }

    /// Waits for the next client, for ever unless the door accepts clients.
    ///
    /// # Cancel safety
    ///
    /// No client is lost.
    pub(super) async fn accept(&mut self) -> TcpStream {
        loop {
            match &self.state {
                State::Accepting(listener) => match listener.accept().await {
                    Ok((client, _)) => return client,
                    // Too many open files, or a client that is gone already.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                },
                State::Refusing | State::Ignoring { .. } => pending().await,
            }
        }
    }
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // Earlier connections on this port may still be in TIME_WAIT, and its reservation is bound to it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}
