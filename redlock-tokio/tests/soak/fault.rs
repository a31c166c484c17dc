use std::time::Duration;

use fastrand::Rng;

use crate::{
    bed::{MAX_TTL, QUARANTINE},
    support::MS,
};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `SIGSTOP`, then `SIGCONT`: the node is silent, and then answers everything.
    Freeze,
    /// `kill -9`, and a restart after all forgotten locks have expired.
    Crash,
    /// `kill -9`, and a restart soon after. Only the quarantine prevents harm.
    Restart,
    Delay,
    HoldRequests,
    HoldReplies,
    LoseRequests,
    LoseReplies,
    /// Nothing gets through, and no client can connect.
    BlackHole,
    Reset,
    /// Bytes of one connection arrive after those of the next connection.
    Strand,
    PauseWrites,
    FlushScripts,
    /// `SIGSTOP` of a worker for longer than its locks live, then `SIGCONT`.
    StopWorker,
    /// `kill -9` of all nodes, and a restart. No lock is granted for a while, and none twice. Only on request.
    PowerCut,
    /// `FLUSHALL` on all nodes, which breaks the conditions of every promise.
    Forget,
}

/// A planned fault.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) length: Duration,
    /// The indices of nodes, or of a worker.
    pub(crate) victims: Vec<usize>,
}

impl Kind {
    /// The kinds that leave a majority of nodes alone.
    pub(crate) const USUAL: &[Self] = &[
        Self::Freeze,
        Self::Crash,
        Self::Restart,
        Self::Delay,
        Self::HoldRequests,
        Self::HoldReplies,
        Self::LoseRequests,
        Self::LoseReplies,
        Self::BlackHole,
        Self::Reset,
        Self::Strand,
        Self::PauseWrites,
        Self::FlushScripts,
        Self::StopWorker,
    ];

    /// Returns the kinds during which exclusion is promised.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        Self::USUAL.iter().chain(&[Self::PowerCut])
    }

    /// Draws the duration of a fault.
    pub(crate) fn length(self, rng: &mut Rng) -> Duration {
        let max_ttl = MAX_TTL.as_millis() as u64;
        MS(match self {
            Self::Reset | Self::FlushScripts | Self::Forget => 0,
            Self::Crash => rng.u64(max_ttl + 200..max_ttl + 1000),
            Self::Restart | Self::PowerCut => rng.u64(..500),
            Self::StopWorker => rng.u64(max_ttl + 100..max_ttl + 2000),
            _ => rng.u64(100..1500),
        })
    }

    /// Returns how long the victims need to recover after the fault: the quarantine, or a new connection.
    pub(crate) fn aftermath(self) -> Duration {
        match self {
            Self::Crash | Self::Restart | Self::PowerCut => QUARANTINE,
            // An unanswered attempt to connect, the pause after it, and the next attempt.
            Self::BlackHole => MS(3000),
            _ => MS(1000),
        }
    }
}
