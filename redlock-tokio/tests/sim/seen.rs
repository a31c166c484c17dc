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
    Slow = "slow messages",
    ResetBefore = "connections reset before a request was carried out",
    ResetAfter = "connections reset after a request was carried out",
    InvalidationLost = "invalidations lost",
    InvalidationLate = "invalidations late",
    InvalidationDoubled = "invalidations doubled",
    InvalidationInvented = "invalidations invented",
    Stall = "routes that stall with the connection open",
    ServerEnd = "servers that restart empty",
    ServerEndKeeping = "servers that restart with their keys",
    Pause = "processes that stand still",
    Crash = "processes that crash",
    // Situations.
    Acquired = "acquisitions",
    TimedOut = "requests that gave up waiting",
    NoQuorum = "requests that found no quorum",
    Released = "guards dropped",
    Lost = "locks lost",
    ServedAfterFaults = "users served after the faults",
}

impl Seen {
    /// How many of them, from the first, are faults.
    pub(crate) const FAULTS: usize = Self::Crash as usize + 1;
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
