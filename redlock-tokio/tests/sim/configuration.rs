//! The worlds that are simulated.

use crate::{
    authority::Owners,
    clock::{HOUR, Rate},
    faults::Fault,
    rng::Rng,
    violation::Kind,
};

/// What processes do with a server that has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restarts {
    /// It waits before it votes.
    Quarantined,
    /// It votes at once, because it keeps its keys.
    Durable,
    /// It votes at once, although it may have forgotten keys.
    Trusted,
}

/// What answers are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Sound,
    /// Some are missing, some are doubled, and some make no sense. None is a yes to what was not done.
    Senseless,
    /// Some belong to another command of their batch.
    OutOfStep,
}

/// At which rates clocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// Within the drift allowance.
    Agree,
    /// Those of processes run 10 to 40 % slow.
    SlowProcesses,
    /// Those of servers run 10 to 40 % fast.
    FastServers,
}

/// How far the wall clocks of processes are apart, and what becomes of the counters of fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fencing {
    /// Wall clocks differ by less than the longest ttl. A server that loses keys loses its counters, too.
    ClocksAgree,
    /// Wall clocks are hours apart, and are set at any time. No server loses a counter.
    CountersSurvive,
    /// Wall clocks are hours apart, and servers lose their counters.
    Neither,
}

/// One world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// What happens in it, and why that violates a promise, if it does.
    pub(crate) about: &'static str,
    /// None in any seed of a world within the assumptions. Otherwise the first one in at least one seed. The others may
    /// follow from it, and there is none of any other kind.
    pub(crate) violations: &'static [Kind],
    /// Faults come this many times more often.
    pub(crate) severity: u32,
    pub(crate) restarts: Restarts,
    /// The faults of servers, routes and processes. Those of single messages are everywhere.
    pub(crate) faults: &'static [&'static [Fault]],
    pub(crate) answers: Answers,
    pub(crate) clocks: Clocks,
    pub(crate) fencing: Fencing,
    /// Servers may vote that do not say enough of themselves, and no server says anything.
    pub(crate) allows_unvetted: bool,
    /// Validity is shorter than the ttl, for clocks of different rates.
    pub(crate) drift: bool,
    /// Users have their locks renewed, unless they ask for something else. If not, they hand them over for as long as
    /// they can.
    pub(crate) renews: bool,
    /// Five to nine servers, and dozens of users.
    pub(crate) is_crowded: bool,
    /// Requests of one connection never overtake each other.
    pub(crate) in_order: bool,
    /// What names the masters, if their addresses do not.
    pub(crate) owners: Option<Owners>,
    /// In how many seeds, from the first one on, the violation is found that must be found.
    pub(crate) found_in: u64,
    /// Violations take many seeds, so the first one ends the runs.
    pub(crate) is_rare: bool,
}

impl Configuration {
    pub(crate) fn is_safe(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns whether servers lose keys in restarts only, and have no vote then.
    pub(crate) fn keeps_keys(&self) -> bool {
        let mut faults = self.faults.iter().copied().flatten();
        let has_replicas = faults.any(|it| matches!(it, Fault::Promotion | Fault::Demotion));
        self.is_safe() && self.owners.is_none() && !has_replicas
    }

    /// Returns whether a lock with a longer ttl than the longest is refused.
    pub(crate) fn limits_ttl(&self) -> bool {
        self.restarts != Restarts::Trusted
    }

    /// Returns whether there are replicas, which take the place of masters.
    pub(crate) fn has_replicas(&self) -> bool {
        let mut faults = self.faults.iter().copied().flatten();
        faults.any(|it| matches!(it, Fault::Promotion | Fault::TwoMasters))
    }
}

impl Fencing {
    /// Returns how far a wall clock is ahead of the slowest at most, in nanoseconds. Where servers lose counters, that
    /// leaves room for the drift of the other clock since the last look at the wall clock.
    pub(crate) fn wall_clocks_differ_by(self, max_ttl: u64) -> u64 {
        match self {
            Self::ClocksAgree => max_ttl / 2,
            Self::CountersSurvive | Self::Neither => 2 * HOUR,
        }
    }
}

impl Clocks {
    pub(crate) fn of_process(self, rng: &mut Rng) -> Rate {
        match self {
            Self::Agree | Self::FastServers => Rate::draw_within(rng),
            Self::SlowProcesses => Rate::draw_slow(rng),
        }
    }

    pub(crate) fn of_server(self, rng: &mut Rng) -> Rate {
        match self {
            Self::Agree | Self::SlowProcesses => Rate::draw_within(rng),
            Self::FastServers => Rate::draw_fast(rng),
        }
    }
}

/// What happens to every fleet. Some servers restart with their keys, and wait all the same.
pub(crate) const USUAL: &[Fault] = &[
    Fault::ServerEnd,
    Fault::Stall,
    Fault::Silence,
    Fault::ServerPause,
    Fault::SlowServer,
    Fault::Refusal,
    Fault::Reticence,
    Fault::ClockSetBack,
    Fault::ForeignLock,
    Fault::ForeignWrite,
    Fault::Pause,
    Fault::Stutter,
    Fault::Crash,
    Fault::RuntimeDrop,
    Fault::Invention,
    Fault::WallClock,
];

pub(crate) const WITHIN: Configuration = Configuration {
    name: "within",
    about: "what happens to every fleet",
    violations: &[],
    severity: 1,
    restarts: Restarts::Quarantined,
    faults: &[USUAL],
    answers: Answers::Sound,
    clocks: Clocks::Agree,
    fencing: Fencing::ClocksAgree,
    allows_unvetted: false,
    drift: true,
    renews: true,
    is_crowded: false,
    in_order: true,
    owners: None,
    found_in: 12,
    is_rare: false,
};

/// A write of the second holder makes that of the first one stale.
const TWO_HOLDERS: &[Kind] = &[Kind::TwoHolders, Kind::Fencing];

/// Keys vanish or come back on servers with which nothing seems to be wrong. So locks are lost without a cause that
/// their users know, and a key may be there after its release.
pub(crate) const KEYS_CHANGE: &[Kind] = &[Kind::TwoHolders, Kind::Fencing, Kind::Statement];

/// What takes a time by the clock of a process takes longer in true time.
const CLOCKS_LAG: &[Kind] = &[
    Kind::TwoHolders,
    Kind::Fencing,
    Kind::LateLoss,
    Kind::Statement,
    Kind::Service,
];

const BEYOND: Configuration = Configuration {
    violations: TWO_HOLDERS,
    severity: 20,
    ..WITHIN
};

pub(crate) const CONFIGURATIONS: &[Configuration] = &[
    WITHIN,
    Configuration {
        name: "within-storm",
        about: "the same, with eight times the faults",
        severity: 8,
        ..WITHIN
    },
    Configuration {
        name: "within-fleet",
        about: "the same, and all servers restart, at once or one after the other",
        severity: 2,
        faults: &[USUAL, &[Fault::FleetRestart]],
        ..WITHIN
    },
    Configuration {
        name: "within-promotions",
        about: "the same, and replicas that lag behind are promoted behind the same address, and masters become \
                replicas while processes are connected",
        severity: 3,
        faults: &[USUAL, &[Fault::Promotion, Fault::Demotion]],
        ..WITHIN
    },
    Configuration {
        name: "within-durable",
        about: "servers keep keys and counters when they restart, and vote at once; wall clocks are hours apart",
        severity: 5,
        restarts: Restarts::Durable,
        fencing: Fencing::CountersSurvive,
        ..WITHIN
    },
    Configuration {
        name: "within-senseless",
        about: "answers are missing, doubled, or make no sense",
        severity: 3,
        answers: Answers::Senseless,
        ..WITHIN
    },
    Configuration {
        name: "within-unrenewed",
        about: "the same, and most locks are handed over and not renewed, so that less and less of the ttl is left",
        renews: false,
        ..WITHIN
    },
    Configuration {
        name: "within-crowd",
        about: "the same over five to nine servers, with dozens of users",
        severity: 2,
        faults: &[USUAL, &[Fault::FleetRestart]],
        is_crowded: true,
        ..WITHIN
    },
    Configuration {
        name: "beyond-no-quarantine",
        about: "servers that restarted empty vote at once, and grant keys that they have forgotten",
        restarts: Restarts::Trusted,
        faults: &[&[Fault::ServerEnd]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-torn-restarts",
        about: "servers that are said to be durable lose their last second in a restart, and vote at once",
        violations: KEYS_CHANGE,
        restarts: Restarts::Durable,
        faults: &[&[Fault::TornRestart]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-unvetted",
        about: "servers that refuse INFO may vote, even those that restarted empty just now",
        faults: &[&[Fault::ServerEnd, Fault::FleetRestart]],
        allows_unvetted: true,
        ..BEYOND
    },
    Configuration {
        name: "beyond-unseen-demotion",
        about: "masters lose their keys as replicas for a moment, and their connections go on: they vote until the \
                next inspection",
        violations: KEYS_CHANGE,
        faults: &[&[Fault::UnseenDemotion]],
        found_in: 96,
        ..BEYOND
    },
    Configuration {
        name: "beyond-two-masters",
        about: "a replica is promoted, and the master before goes on to vote on the connections that it has",
        violations: KEYS_CHANGE,
        faults: &[&[Fault::TwoMasters]],
        found_in: 48,
        ..BEYOND
    },
    Configuration {
        name: "beyond-eviction",
        about: "servers evict keys of locks that are held, and grant them again",
        violations: KEYS_CHANGE,
        faults: &[&[Fault::Eviction]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-flushall",
        about: "FLUSHALL, which does not show in INFO: servers grant keys that they have forgotten",
        violations: KEYS_CHANGE,
        faults: &[&[Fault::Flush]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-clock-steps",
        about: "clocks of servers step forward: keys expire before the validity that they were to cover",
        violations: KEYS_CHANGE,
        faults: &[&[Fault::ClockStep]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-wall-clocks",
        about: "wall clocks are hours apart, and servers lose their counters: later tokens are smaller",
        violations: &[Kind::Fencing],
        faults: &[USUAL, &[Fault::FleetRestart, Fault::Promotion]],
        fencing: Fencing::Neither,
        severity: 3,
        ..BEYOND
    },
    Configuration {
        name: "beyond-fast-servers",
        about: "clocks of servers run 10 to 40 % fast: keys expire before the validity that they were to cover",
        violations: KEYS_CHANGE,
        clocks: Clocks::FastServers,
        severity: 1,
        ..BEYOND
    },
    Configuration {
        name: "beyond-slow-processes",
        about: "clocks of processes run 10 to 40 % slow: they trust keys that have expired",
        violations: CLOCKS_LAG,
        clocks: Clocks::SlowProcesses,
        severity: 1,
        ..BEYOND
    },
    Configuration {
        name: "beyond-suspension",
        about: "clocks stand still while their processes do, which then trust keys that have expired",
        violations: CLOCKS_LAG,
        faults: &[&[Fault::Suspension]],
        ..BEYOND
    },
    Configuration {
        name: "beyond-out-of-step",
        about: "some answers belong to other commands of their batch, so that a no is taken for a yes",
        faults: &[&[Fault::Invention]],
        answers: Answers::OutOfStep,
        found_in: 48,
        ..BEYOND
    },
    Configuration {
        name: "control-no-drift",
        about: "the driver allows for no drift: keys on fast servers expire before the validity ends",
        severity: 1,
        drift: false,
        renews: false,
        found_in: 100,
        is_rare: true,
        ..BEYOND
    },
    Configuration {
        name: "control-overtaking",
        about: "a release overtakes the request that sets its key: the key stays until it expires",
        violations: &[Kind::LeftoverKey, Kind::Statement],
        severity: 8,
        in_order: false,
        found_in: 60,
        ..BEYOND
    },
];
