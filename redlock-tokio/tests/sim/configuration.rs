//! The worlds that are simulated.

/// What a run is allowed to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// No violation in any seed.
    Safe,
    /// At least one violation over the seeds.
    Violated,
}

/// One world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// What happens in it, and why that violates a promise, if it does.
    pub(crate) about: &'static str,
    pub(crate) expectation: Expectation,
    /// Faults come this many times more often.
    pub(crate) severity: u32,
    /// Servers that have just started wait before they vote.
    pub(crate) quarantine: bool,
    /// Validity is shorter than the ttl, for clocks of different rates.
    pub(crate) drift: bool,
    /// Requests of one connection never overtake each other.
    pub(crate) in_order: bool,
}

const WITHIN: Configuration = Configuration {
    name: "within",
    about: "every fault that the algorithm allows",
    expectation: Expectation::Safe,
    severity: 1,
    quarantine: true,
    drift: true,
    in_order: true,
};

const BEYOND: Configuration = Configuration {
    expectation: Expectation::Violated,
    severity: 8,
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
        name: "beyond-no-quarantine",
        about: "servers that restarted empty vote at once, and grant keys that they have forgotten",
        quarantine: false,
        ..BEYOND
    },
    Configuration {
        name: "control-no-drift",
        about: "the driver allows for no drift: keys on fast servers expire before the validity ends",
        drift: false,
        ..BEYOND
    },
    Configuration {
        name: "control-overtaking",
        about: "a release overtakes the request that sets its key: the key stays until it expires",
        in_order: false,
        ..BEYOND
    },
];
