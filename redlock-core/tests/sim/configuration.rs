//! The worlds that are simulated: within the assumptions, beyond them, and with a broken driver.

use crate::clock::{HOUR, SECOND};

/// What a run is allowed to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// No violation in any seed.
    Safe,
    /// At least one violation over the seeds, each with its cause at hand.
    Violated,
}

/// A mistake of the driver, to show that the checker sees what it must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Keys are trusted for the whole ttl.
    AllowsNoDrift,
    /// One refusal in each round of acquisition is handed on as a grant.
    ForgesAVote,
    /// A failed extension is answered by releasing the keys.
    ReleasesOnFailedExtension,
    /// The driver ignores that a master was promoted.
    IgnoresPromotions,
    /// Any marker is taken to be old.
    IgnoresMarkerAge,
    /// The driver asks the members that answer, and takes them for all.
    CountsAnsweringMembers,
    /// The driver believes a confirmation for ever.
    IgnoresWindow,
    /// The driver lets a new owner vote at once.
    IgnoresSettling,
    /// The clock stands still while the client is paused, as `Instant` does in a suspended machine.
    ClockStopsInPause,
}

/// One world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// What happens in it, and why that violates safety, if it does.
    pub(crate) about: &'static str,
    pub(crate) expectation: Expectation,
    /// Requests of one connection never overtake each other.
    pub(crate) fifo: bool,
    pub(crate) quarantine: bool,
    /// The quarantine is for a ttl that is this many times shorter than the longest.
    pub(crate) quarantine_share: u64,
    pub(crate) durable_counters: bool,
    /// By how much clients' wall clocks differ at most, in nanoseconds.
    pub(crate) wall_clocks_differ: u64,
    pub(crate) slow_clients: bool,
    pub(crate) clock_steps: bool,
    pub(crate) flushes: bool,
    /// Replicas that lack keys take the place of masters.
    pub(crate) promotions: bool,
    /// Authorities name the owners of nodes, and failovers lose keys.
    pub(crate) authorities: bool,
    /// Faults come this many times more often.
    pub(crate) severity: u32,
    pub(crate) mutant: Option<Mutant>,
}

impl Configuration {
    /// Returns whether no master that may have forgotten a lock has a vote.
    pub(crate) fn is_quarantine_kept(&self) -> bool {
        self.quarantine && self.quarantine_share == 1
    }
}

const WITHIN: Configuration = Configuration {
    name: "within-fifo",
    about: "every fault the algorithm allows, connections in order",
    expectation: Expectation::Safe,
    fifo: true,
    quarantine: true,
    quarantine_share: 1,
    durable_counters: true,
    wall_clocks_differ: 10 * SECOND,
    slow_clients: false,
    clock_steps: false,
    flushes: false,
    promotions: false,
    authorities: false,
    severity: 1,
    mutant: None,
};

/// A failover loses counters too, so wall clocks must agree to within the longest ttl.
const OWNERS: Configuration = Configuration {
    name: "within-owners",
    about: "in order, one voter or three, and authorities name their owners: failovers lose keys",
    authorities: true,
    wall_clocks_differ: SECOND / 2,
    ..WITHIN
};

const BEYOND: Configuration = Configuration {
    expectation: Expectation::Violated,
    severity: 3,
    ..WITHIN
};

pub(crate) const CONFIGURATIONS: &[Configuration] = &[
    WITHIN,
    Configuration {
        name: "within-overtaking",
        about: "the same, and requests overtake each other",
        fifo: false,
        ..WITHIN
    },
    Configuration {
        name: "within-storm",
        about: "in order, with eight times the faults",
        severity: 8,
        ..WITHIN
    },
    Configuration {
        name: "within-counters-lost",
        about: "in order, restarts lose fencing counters, wall clocks agree to half a second",
        durable_counters: false,
        wall_clocks_differ: SECOND / 2,
        severity: 3,
        ..WITHIN
    },
    Configuration {
        name: "within-promotions",
        about: "in order, and replicas that lag behind are promoted behind the same address",
        promotions: true,
        severity: 3,
        ..WITHIN
    },
    OWNERS,
    Configuration {
        name: "beyond-slow-clients",
        about: "some clients' clocks run 10 to 40 % slow: they trust keys that have expired",
        slow_clients: true,
        ..BEYOND
    },
    Configuration {
        name: "beyond-clock-steps",
        about: "masters' clocks jump forward: keys expire before the validity they were to cover",
        clock_steps: true,
        ..BEYOND
    },
    Configuration {
        name: "beyond-no-quarantine",
        about: "masters that restarted empty vote at once: they grant keys they have forgotten",
        quarantine: false,
        ..BEYOND
    },
    Configuration {
        name: "beyond-short-quarantine",
        about: "the quarantine is a sixteenth of the longest ttl: the fleet disagrees on max_ttl",
        quarantine_share: 16,
        severity: 20,
        ..BEYOND
    },
    Configuration {
        name: "beyond-flushall",
        about: "FLUSHALL, which no client can see: masters grant keys they have forgotten",
        flushes: true,
        ..BEYOND
    },
    Configuration {
        name: "beyond-counters-lost",
        about: "restarts lose fencing counters, wall clocks differ: tokens may go back",
        durable_counters: false,
        wall_clocks_differ: HOUR,
        ..BEYOND
    },
    Configuration {
        name: "mutant-no-drift",
        about: "the driver allows for no drift: keys on fast masters expire first",
        severity: 1,
        mutant: Some(Mutant::AllowsNoDrift),
        ..BEYOND
    },
    Configuration {
        name: "mutant-forged-vote",
        about: "the driver forges one vote in each round",
        mutant: Some(Mutant::ForgesAVote),
        ..BEYOND
    },
    Configuration {
        name: "mutant-failed-extend",
        about: "the driver releases the keys when an extension fails",
        mutant: Some(Mutant::ReleasesOnFailedExtension),
        ..BEYOND
    },
    Configuration {
        name: "mutant-promotions",
        about: "the driver ignores that a master was promoted",
        promotions: true,
        mutant: Some(Mutant::IgnoresPromotions),
        ..BEYOND
    },
    Configuration {
        name: "mutant-marker-age",
        about: "the driver believes a marker of any age",
        promotions: true,
        mutant: Some(Mutant::IgnoresMarkerAge),
        ..BEYOND
    },
    Configuration {
        name: "mutant-answering",
        about: "the driver takes the members that answer for all members of an authority",
        expectation: Expectation::Violated,
        severity: 3,
        mutant: Some(Mutant::CountsAnsweringMembers),
        ..OWNERS
    },
    Configuration {
        name: "mutant-window",
        about: "the driver lets an owner vote however old its last confirmation is",
        expectation: Expectation::Violated,
        severity: 3,
        mutant: Some(Mutant::IgnoresWindow),
        ..OWNERS
    },
    Configuration {
        name: "mutant-settling",
        about: "the driver lets a new owner vote at once",
        expectation: Expectation::Violated,
        severity: 3,
        mutant: Some(Mutant::IgnoresSettling),
        ..OWNERS
    },
    Configuration {
        name: "mutant-stopped-clock",
        about: "the driver's clock stops while the client is paused",
        mutant: Some(Mutant::ClockStopsInPause),
        ..BEYOND
    },
];
