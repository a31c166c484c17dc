//! The worlds of authorities, and one without each rule.

use super::owners::{Kind, Owners, Rule};
use crate::{
    configuration::{Configuration, KEYS_CHANGE, USUAL},
    faults::Fault,
    violation,
};

const AUTHORITIES: &[Fault] = &[
    Fault::Failover,
    Fault::Flapping,
    Fault::Member,
    Fault::Split,
];

const SENTINEL: Owners = Owners {
    kind: Kind::Sentinels { groups: 1 },
    without: None,
    only_failovers: false,
    has_detours: false,
};

const SENTINELS: Owners = Owners {
    kind: Kind::Sentinels { groups: 3 },
    ..SENTINEL
};

const CLUSTER: Owners = Owners {
    kind: Kind::Cluster,
    ..SENTINEL
};

/// The worlds in which each rule holds.
pub(crate) const WITHIN: [Configuration; 5] = [
    Configuration {
        name: "within-sentinel",
        about: "one group of sentinels has the only vote, and failovers lose keys",
        faults: &[USUAL, AUTHORITIES],
        owners: Some(SENTINEL),
        ..crate::configuration::WITHIN
    },
    Configuration {
        name: "within-sentinels",
        about: "three groups of sentinels vote",
        faults: &[USUAL, AUTHORITIES],
        owners: Some(SENTINELS),
        ..crate::configuration::WITHIN
    },
    Configuration {
        name: "within-cluster",
        about: "three slots of a cluster vote, shards fail over, and slots move",
        faults: &[USUAL, AUTHORITIES, &[Fault::SlotMove]],
        owners: Some(CLUSTER),
        ..crate::configuration::WITHIN
    },
    Configuration {
        name: "within-detours",
        about: "one group of sentinels has the only vote, and some of its addresses lead to another group for a while",
        faults: &[USUAL, &[Fault::Failover, Fault::Flapping, Fault::Split]],
        owners: Some(Owners {
            kind: Kind::Sentinels { groups: 2 },
            has_detours: true,
            ..SENTINEL
        }),
        ..crate::configuration::WITHIN
    },
    Configuration {
        name: "within-failovers",
        about: "one group of sentinels, and nothing goes wrong but one failover at a time",
        faults: &[&[Fault::Failover]],
        owners: Some(Owners {
            only_failovers: true,
            ..SENTINEL
        }),
        ..crate::configuration::WITHIN
    },
];

const fn without(rule: Rule, owners: Owners) -> Option<Owners> {
    Some(Owners {
        without: Some(rule),
        ..owners
    })
}

const CONTROL: Configuration = Configuration {
    // If two have the lock of a job, it is run twice.
    violations: KEYS_CHANGE,
    faults: &[USUAL, AUTHORITIES],
    ..crate::configuration::WITHIN
};

/// The worlds without one rule.
pub(crate) const CONTROLS: [Configuration; 3] = [
    Configuration {
        name: "without-settling",
        about: "a new owner votes at once: locks of the old one are lost",
        owners: without(Rule::Settling, SENTINEL),
        found_in: 6,
        ..CONTROL
    },
    Configuration {
        name: "without-window",
        about: "a confirmation counts for ever: an old owner goes on to vote",
        owners: without(Rule::Window, SENTINEL),
        found_in: 8,
        ..CONTROL
    },
    Configuration {
        name: "without-all-members",
        about: "the members that answer are taken for all: both sides of a split have a majority",
        owners: without(Rule::AllMembers, SENTINEL),
        found_in: 24,
        ..CONTROL
    },
];

const RARE: Configuration = Configuration {
    found_in: 100,
    is_rare: true,
    ..CONTROL
};

/// More of them. A violation takes more seeds.
pub(crate) const RARE_CONTROLS: [Configuration; 6] = [
    Configuration {
        name: "without-majority",
        about: "each process believes one member",
        owners: without(Rule::Majority, SENTINEL),
        ..RARE
    },
    Configuration {
        name: "without-replicas",
        about: "the masters of a cluster are taken for all its members: the electorate changes with a failover",
        owners: without(Rule::Replicas, CLUSTER),
        // Where the masters change one by one, there are two holders. Where half of them change, the rest is no
        // authority that was known before, and nobody is served.
        violations: &[
            violation::Kind::TwoHolders,
            violation::Kind::Fencing,
            violation::Kind::Service,
            violation::Kind::Remains,
            violation::Kind::Statement,
        ],
        ..RARE
    },
    Configuration {
        name: "without-fewest-members",
        about: "a sentinel that has lost its state is a majority of itself",
        owners: without(Rule::FewestMembers, SENTINEL),
        ..RARE
    },
    Configuration {
        name: "without-ages",
        about: "members claim that each tenure is old, and no history shows otherwise",
        owners: without(Rule::Ages, SENTINEL),
        ..RARE
    },
    Configuration {
        name: "without-markers",
        about: "markers claim that each tenure is old, and no history shows otherwise",
        owners: without(Rule::Markers, CLUSTER),
        ..RARE
    },
    Configuration {
        name: "without-histories",
        about: "servers do not show that they were promoted: a master that was a replica for a moment lacks keys",
        faults: &[&[Fault::Flapping]],
        severity: 3,
        owners: without(Rule::Histories, SENTINEL),
        ..RARE
    },
];
