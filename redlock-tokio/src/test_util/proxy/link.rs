use std::{
    fmt,
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
/// What a direction does is decided when the bytes are about to leave the proxy: what is delayed
/// can still be held, what is held can still be lost.
pub struct Link {
    terms: watch::Sender<Terms>,
    connections: AtomicU64,
    passed: AtomicU64,
    lost: AtomicU64,
    waiting: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    delay: Duration,
    fate: Fate,
    /// Connections with a number below this are held, whatever the fate of the others.
    stranded: u64,
}

/// What becomes of bytes that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Hold,
    Lose,
}

impl Link {
    /// Delays everything by this much from when it came in, to the millisecond, and at most by a
    /// day. Nothing waits for anything else: what comes in at the same time goes out at the same
    /// time, as over a long line.
    pub fn delay(&self, delay: Duration) {
        let delay = delay.min(LONGEST_DELAY);
        self.terms.send_modify(|terms| terms.delay = delay);
    }

    /// Holds everything back, the end of a connection too, until [`pass`](Self::pass).
    pub fn hold(&self) {
        self.decide(Fate::Hold);
    }

    /// Holds back what the connections carry that exist now, until [`pass`](Self::pass); new ones
    /// are not affected. What was sent on a connection that was given up then arrives late, after
    /// what is sent on the next one.
    pub fn strand(&self) {
        self.terms.send_modify(|terms| {
            terms.fate = Fate::Pass;
            terms.stranded = self.connections();
        });
    }

    /// Loses everything, what is held or delayed too, and the end of a connection.
    ///
    /// A stream has no gaps: once a connection has lost anything in this direction, whatever
    /// follows in this direction is lost, even after [`pass`](Self::pass). The other direction and
    /// new connections are not affected.
    pub fn lose(&self) {
        self.decide(Fate::Lose);
    }

    /// Lets everything pass, first what was held, in its order.
    pub fn pass(&self) {
        self.decide(Fate::Pass);
    }

    /// Returns how many bytes went through so far.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// Returns how many bytes were lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Returns how many bytes came in and are still here: held, delayed, or not taken by the
    /// other side.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    fn decide(&self, fate: Fate) {
        self.terms.send_modify(|terms| {
            terms.fate = fate;
            terms.stranded = 0;
        });
    }

    /// Waits until it is decided what becomes of what came in on the connection with this number
    /// at this time. Returns whether it passes.
    pub(super) async fn passes(&self, connection: u64, arrived: Instant) -> bool {
        let mut terms = self.terms.subscribe();
        loop {
            let Terms {
                delay,
                fate,
                stranded,
            } = *terms.borrow_and_update();
            let fate = if connection < stranded {
                Fate::Hold
            } else {
                fate
            };
            let due = arrived + delay;
            // A timer would wait for the end of the millisecond even if it is due.
            let is_due = due <= Instant::now();
            match fate {
                Fate::Pass if is_due => return true,
                Fate::Lose if is_due => return false,
                Fate::Pass | Fate::Hold | Fate::Lose => {}
            }
            // An error would mean that the sender is gone, and it is our own.
            tokio::select! {
                () = sleep_until(due), if !is_due => {}
                _ = terms.changed() => {}
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

    pub(super) fn count_passed(&self, bytes: usize) {
        self.passed.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn count_lost(&self, bytes: usize) {
        self.lost.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn count_arrived(&self, bytes: usize) {
        self.waiting.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(super) fn count_left(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes as u64, Ordering::SeqCst);
    }
}

impl Default for Link {
    fn default() -> Self {
        let terms = Terms {
            delay: Duration::ZERO,
            fate: Fate::Pass,
            stranded: 0,
        };
        Self {
            terms: watch::Sender::new(terms),
            connections: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("terms", &*self.terms.borrow())
            .field("passed", &self.passed())
            .field("lost", &self.lost())
            .field("waiting", &self.waiting())
            .finish()
    }
}
