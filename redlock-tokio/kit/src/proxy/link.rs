use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Longer than any test, and short enough to be added to any time.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

/// One direction through a [`Proxy`](super::Proxy), for all its connections.
///
/// A fault applies to bytes when they are due to leave the proxy. So delayed bytes can still be held, and held
/// bytes can still be lost.
#[derive(Debug, Default)]
pub struct Link {
    faults: watch::Sender<Faults>,
    connections: AtomicU64,
    pub(super) passed: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) waiting: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    delay: Duration,
    fate: Fate,
    /// Connections with a number below this are held, whatever the fate of the others.
    stranded: u64,
}

/// The fate of bytes that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Pass,
    Hold,
    Lose,
}

impl Link {
    /// Delays all bytes by this time, rounded to milliseconds and limited to a day. Like a long line, it does not
    /// limit the throughput: bytes that come in together go out together.
    pub fn delay(&self, delay: Duration) {
        let delay = delay.min(LONGEST_DELAY);
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Holds back all bytes, and the ends of connections, until [`pass`](Self::pass).
    pub fn hold(&self) {
        self.decide(Fate::Hold);
    }

    /// Holds back the bytes of the existing connections until [`pass`](Self::pass). New connections are not
    /// affected. So requests on an abandoned connection arrive late, after requests on the next one.
    pub fn strand(&self) {
        self.faults.send_modify(|faults| {
            faults.fate = Fate::Pass;
            faults.stranded = self.connections();
        });
    }

    /// Loses all bytes, even those that are held or delayed, and the ends of connections.
    ///
    /// A stream has no gaps: once a connection has lost bytes in this direction, all later bytes in this
    /// direction are lost, even after [`pass`](Self::pass). The other direction and new connections are not
    /// affected.
    pub fn lose(&self) {
        self.decide(Fate::Lose);
    }

    /// Lets all bytes pass. Held bytes go first, in their order.
    pub fn pass(&self) {
        self.decide(Fate::Pass);
    }

    /// Returns the number of bytes that passed so far.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that came in and are still in the proxy: held, delayed, or not read by the
    /// other side.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    fn decide(&self, fate: Fate) {
        self.faults.send_modify(|faults| {
            faults.fate = fate;
            faults.stranded = 0;
        });
    }

    /// Waits until the fate of bytes is decided that came in on the connection with this number at this time.
    /// Returns whether they pass.
    pub(super) async fn passes(&self, connection: u64, arrived: Instant) -> bool {
        let mut faults = self.faults.subscribe();
        loop {
            let Faults {
                delay,
                fate,
                stranded,
            } = *faults.borrow_and_update();
            let fate = if connection < stranded {
                Fate::Hold
            } else {
                fate
            };
            let due = arrived + delay;
            // A timer that is due would still wait for the end of the millisecond.
            let is_due = due <= Instant::now();
            match fate {
                Fate::Pass if is_due => return true,
                Fate::Lose if is_due => return false,
                Fate::Pass | Fate::Hold | Fate::Lose => {}
            }
            // An error would mean that the sender is gone, but `self` has it.
            tokio::select! {
                () = sleep_until(due), if !is_due => {}
                _ = faults.changed() => {}
            }
        }
    }

    /// Counts a new connection, and returns its number.
    pub(super) fn count_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The state that a proxy's thread and its owner share.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) requests: Link,
    pub(super) replies: Link,
    pub(super) route: watch::Sender<Route>,
}

impl Links {
    pub(super) fn to(target: SocketAddr) -> Self {
        Self {
            requests: Link::default(),
            replies: Link::default(),
            route: watch::Sender::new(Route { target, moved: 0 }),
        }
    }
}

/// The server that a proxy relays to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) target: SocketAddr,
    /// How often the connections that existed were moved to another server.
    pub(super) moved: u64,
}
