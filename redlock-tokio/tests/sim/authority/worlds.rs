//! The worlds of authorities, and two without a rule: the model checker takes out the others, too.

use super::owners::{Kind, Owners, Rule};
use crate::{
    configuration::{Configuration, KEYS_CHANGE, USUAL},
    faults::Fault,
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
pub(crate) const WITHIN: [Configuration; 4] = [
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
        name: "within-failovers",
        about: "one group of sentinels, and nothing goes wrong but one failover at a time",
        faults: &[&[Fault::Failover]],
        owners: Some(SENTINEL),
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
pub(crate) const CONTROLS: [Configuration; 2] = [
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
];
