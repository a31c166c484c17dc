use std::{fmt, time::Duration};

use fastrand::Rng;

use crate::{
    bed::{MAX_TTL, NODES, QUARANTINE},
    crew::WORKERS,
    settings::{Breakage, Settings},
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
    fn length(self, rng: &mut Rng) -> Duration {
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
    fn aftermath(self) -> Duration {
        match self {
            Self::Crash | Self::Restart | Self::PowerCut => QUARANTINE,
            // An unanswered attempt to connect, the pause after it, and the next attempt.
            Self::BlackHole => MS(3000),
            _ => MS(1000),
        }
    }
}

/// Plans the faults of a run: all kinds in turn, in random order. Faults that overlap hit a minority of nodes at
/// most.
pub(crate) fn plan(settings: &Settings) -> Vec<Fault> {
    match settings.breakage {
        None => storm(settings),
        Some(Breakage::NoLock | Breakage::Leak) => Vec::new(),
        Some(Breakage::Forget) => again_and_again(Kind::Forget, MS(250), settings.length),
        Some(Breakage::Trust) => again_and_again(Kind::PowerCut, MS(1500), settings.length),
    }
}

/// Plans the same fault for all nodes at intervals that are too short for a recovery.
fn again_and_again(kind: Kind, every: Duration, length: Duration) -> Vec<Fault> {
    let fault = |at| Fault {
        at,
        kind,
        length: Duration::ZERO,
        victims: (0..NODES).collect(),
    };
    let times = (1..).map(|number| every * number);
    times.take_while(|at| *at < length).map(fault).collect()
}

fn storm(settings: &Settings) -> Vec<Fault> {
    const MINORITY: usize = (NODES - 1) / 2;
    let mut rng = Rng::with_seed(settings.seed);
    let mut faults = Vec::new();
    let (mut nodes, mut workers) = ([Duration::ZERO; NODES], [Duration::ZERO; WORKERS]);
    let (mut kinds, mut now) = (Vec::new(), MS(500));
    loop {
        if kinds.is_empty() {
            kinds = settings.kinds().to_vec();
            rng.shuffle(&mut kinds);
        }
        let kind = kinds.pop().expect("it was filled");
        let (busy, most) = match kind {
            Kind::StopWorker => (&mut workers[..], 1),
            Kind::PowerCut => (&mut nodes[..], NODES),
            _ => (&mut nodes[..], MINORITY),
        };
        // Mostly one victim, sometimes as many as possible.
        let wanted = match kind {
            Kind::PowerCut => NODES,
            _ if rng.u8(..4) == 0 => most,
            _ => 1,
        };
        let mut ends: Vec<_> = busy.iter().copied().filter(|it| *it > now).collect();
        ends.sort_unstable();
        if let Some(excess) = (ends.len() + wanted).checked_sub(most + 1) {
            now = ends[excess];
        }
        let length = kind.length(&mut rng);
        if now + length > settings.length {
            return faults;
        }
        let mut victims: Vec<_> = (0..busy.len()).filter(|it| busy[*it] <= now).collect();
        rng.shuffle(&mut victims);
        victims.truncate(wanted);
        for victim in &victims {
            busy[*victim] = now + length + kind.aftermath();
        }
        faults.push(Fault {
            at: now,
            kind,
            length,
            victims,
        });
        now += MS(rng.u64(50..600));
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            kind,
            length,
            victims,
        } = self;
        let at = at.as_secs_f64();
        write!(f, "{kind:?} of {victims:?} at {at:.1} s for {length:?}")
    }
}
