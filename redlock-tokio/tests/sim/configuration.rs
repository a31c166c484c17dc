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
}

const WITHIN: Configuration = Configuration {
    name: "within",
    about: "every fault that the algorithm allows",
    expectation: Expectation::Safe,
    severity: 1,
    quarantine: true,
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
        expectation: Expectation::Violated,
        severity: 8,
        quarantine: false,
    },
];
