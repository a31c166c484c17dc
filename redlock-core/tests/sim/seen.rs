//! What a run has seen: faults injected and situations reached.

use std::ops::AddAssign;

macro_rules! seen {
    ($($kind:ident = $name:literal,)*) => {
        /// Something that must have happened, or the runs have tested nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Seen { $($kind,)* }

        impl Seen {
            pub(crate) const ALL: &[(Self, &'static str)] = &[$((Self::$kind, $name),)*];
        }
    };
}

seen! {
    // Faults.
    Loss = "lost messages",
    Break = "broken connections",
    Repeat = "repeated deliveries",
    Slow = "slow messages",
    Cut = "partitions",
    MasterCrash = "master crashes",
    FleetRestart = "fleet restarts",
    Pause = "client pauses",
    ClientCrash = "client crashes",
    Promotion = "promotions of replicas that lack keys",
    Failover = "failovers that lose keys",
    MemberFault = "members that restart, lag, or are cut off",
    ClockStep = "clock steps",
    Flush = "FLUSHALLs",
    // Situations.
    Acquired = "acquisitions",
    Contended = "keys found to be another's",
    Retried = "acquired after a retry",
    ProbedTaken = "probes of a key that was taken",
    FreedNotifier = "tried again because the key was free",
    Exhausted = "gave up",
    Extended = "extensions",
    Recovered = "extension failed, then recovered",
    Repaired = "repairs",
    LostExpired = "lost by expiry",
    LostKeys = "lost with its keys",
    LostMaxHold = "lost at max_hold",
    Abandoned = "abandoned",
    Cancelled = "attempts cancelled",
    Released = "released",
    LateSet = "SET carried out after its lease ended",
    LateExtend = "EXTEND carried out after its lease ended",
    RestartWhileHeld = "restart of a master that held a valid lease's key",
    QuarantinedVote = "votes held back by quarantine",
    OldMarker = "promoted masters that vote by their marker",
    Lapsed = "votes of owners that were not confirmed any more",
    Settling = "votes of owners that had to wait",
    OldOwner = "connections to an owner that was replaced already",
    TenureMarker = "owners that waited less because of a marker",
    QuarantinedRefusal = "gave up because of quarantine",
    ResumedTooLate = "paused beyond the end of validity",
    OwedRelease = "owed releases delivered",
    Fenced = "fenced acquisitions",
    SecondFence = "fences settled in a second round",
    RaisedAgain = "counters raised again under a hold",
    StaleWrite = "stale writes refused by the fence",
    Spurious = "spurious timeouts",
    Probed = "keys free again at the end",
}

impl Seen {
    /// How many of them, from the first, are faults.
    pub(crate) const FAULTS: usize = Self::Flush as usize + 1;
}

/// How often each was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally([u64; Seen::ALL.len()]);

impl Tally {
    pub(crate) fn new() -> Self {
        Self([0; Seen::ALL.len()])
    }

    pub(crate) fn note(&mut self, what: Seen) {
        self.0[what as usize] += 1;
    }

    pub(crate) fn get(&self, what: Seen) -> u64 {
        self.0[what as usize]
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }
}
