use std::{fmt, time::Duration};

use fastrand::Rng;

use crate::{
    bed::QUARANTINE,
    support::MS,
    topology::{MAX_TTL, Topology},
};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `SIGSTOP`, then `SIGCONT`: the node is silent, and then answers everything. In a group or a cluster, it is a
    /// master, and stays silent until after its replacement.
    Freeze,
    /// `kill -9`, and a restart after all forgotten locks have expired, or of a master after its replacement.
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
    /// `kill -9` of some processes that wait, which are replaced, and `SIGSTOP` of others, then `SIGCONT`.
    FailWaiters,
    /// `kill -9` of all nodes, and a restart at once.
    PowerCut,
    /// An order to fail over, to a healthy group or shard.
    FailOver,
    /// A master that only clients reach, until after its replacement.
    CutOff,
    /// The same, and an order to fail over at once.
    CutOffAndFailOver,
    /// `SIGSTOP` of a worker during a failover, then `SIGCONT`.
    StopWorkerAndFailOver,
    /// `kill -9` of a sentinel, and a restart.
    RestartSentinel,
    /// A voter's slot moves to another shard, sometimes with a failover half way.
    MoveSlot,
    /// `kill -9` of the master that a voter's slot moves to, and a restart after its replacement has the slot.
    CrashTarget,
    /// `FLUSHALL` on all nodes, which breaks the conditions of every promise.
    Forget,
}

/// For how long nodes stay well after waiters fail, so that a wait can exceed the bound.
pub(crate) const CALM: Duration = Duration::from_secs(12);

/// A planned fault.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) length: Duration,
    /// The indices of nodes, or of workers.
    pub(crate) victims: Vec<usize>,
}

impl Kind {
    /// The kinds that leave a majority of nodes alone.
    const USUAL: &[Self] = &[
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
        Self::FailWaiters,
    ];

    /// The kinds that concern the master of a group or of a shard.
    const OF_A_MASTER: &[Self] = &[
        Self::FailOver,
        Self::Crash,
        Self::Freeze,
        Self::CutOff,
        Self::CutOffAndFailOver,
        Self::StopWorkerAndFailOver,
        Self::FailWaiters,
    ];

    /// Returns the kinds of a usual run.
    pub(crate) fn usual(topology: Topology) -> Vec<Self> {
        match topology {
            Topology::Masters => Self::USUAL.to_vec(),
            Topology::Sentinel => [Self::OF_A_MASTER, &[Self::RestartSentinel]].concat(),
            Topology::Cluster => [Self::OF_A_MASTER, &[Self::MoveSlot, Self::CrashTarget]].concat(),
        }
    }

    /// Returns whether the victims are processes, and not nodes.
    pub(crate) fn is_of_processes(self) -> bool {
        matches!(self, Self::StopWorker | Self::FailWaiters)
    }

    /// Draws the duration of a fault.
    pub(crate) fn length(self, rng: &mut Rng) -> Duration {
        let max_ttl = MAX_TTL.as_millis() as u64;
        MS(match self {
            Self::Reset | Self::FlushScripts => 0,
            Self::Crash => rng.u64(max_ttl + 200..max_ttl + 1000),
            Self::Restart => rng.u64(..500),
            Self::StopWorker => rng.u64(max_ttl + 100..max_ttl + 2000),
            Self::FailWaiters => rng.u64(4000..30_000),
            _ => rng.u64(100..1500),
        })
    }

    /// Returns how long the victims need to recover after the fault: the quarantine, or a new connection.
    pub(crate) fn aftermath(self) -> Duration {
        match self {
            Self::Crash | Self::Restart => QUARANTINE,
            // An unanswered attempt to connect, the pause after it, and the next attempt.
            Self::BlackHole => MS(3000),
            _ => MS(1000),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, victims, length) = (self.kind, &self.victims, self.length);
        let at = self.at.as_secs_f64();
        write!(f, "{kind:?} of {victims:?} at {at:.1} s for {length:?}")
    }
}
