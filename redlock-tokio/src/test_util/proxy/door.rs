use std::{future::pending, io, net::SocketAddr, time::Duration};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

/// How many connections may wait to be accepted: more than any test opens at once.
const BACKLOG: u32 = 1024;

/// How long the connection that fills a backlog may take. It is the first or it is not needed, and
/// does not leave the machine.
const FILLER_LIMIT: Duration = Duration::from_millis(100);

/// How a proxy receives new connections.
pub(super) struct Door {
    address: SocketAddr,
    state: State,
}

enum State {
    Accepting(TcpListener),
    /// Nobody listens.
    Refusing,
    /// The kernel has nowhere to put another connection, so it ignores whoever asks for one.
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
        // Those who wait to be accepted would be reset, so a door that is open stays as it is.
        if matches!(
            (admission, &self.state),
            (Admission::Accept, State::Accepting(_))
        ) {
            return Ok(());
        }
        // Two cannot listen on one port.
        self.close();
        self.state = match admission {
            Admission::Refuse => State::Refusing,
            Admission::Accept => State::Accepting(listen(self.address, BACKLOG)?),
            Admission::Ignore => {
                // A backlog of zero has room for one. If somebody else took it, the filler finds
                // none, which is as good.
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
            // Closing it is not enough: while another thread starts a process, that has a copy of
            // it for a moment. (On Linux. Elsewhere this fails and does nothing.)
            let _ = shutdown(&listener, Shutdown::Read);
        }
    }

    /// Waits for the next client; for ever, unless clients are accepted.
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
    // Earlier connections on this port may still be in TIME_WAIT, and its reservation is bound to
    // it, too.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}
